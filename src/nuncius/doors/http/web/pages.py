"""Endpoints without a request body: health checks, metrics, the description of the API and its page."""

from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files

from nuncius.doors.http.answering import in_time
from nuncius.doors.http.api import openapi
from nuncius.doors.http.api.operations import Operation
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.exchange import TEXT, Exchange
from nuncius.doors.http.queue_report import openapi as report_openapi
from nuncius.doors.http.watching import metrics

HTML = b"text/html; charset=utf-8"
READY_SECONDS = 2.0  # for the store to answer
POLICY = (
    b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self';"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
GUARDED = [  # as the console's pages are
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
]

Endpoint = Callable[[Exchange], Awaitable[None]]


class PlainPages:
    def __init__(self, desk: Desk, operations: Sequence[Operation]) -> None:
        self._desk = desk
        self._description = openapi.document(operations)
        self._description_of_report = report_openapi.document()
        self._page = files(__package__).joinpath("docs.html").read_bytes()
        self.endpoints: dict[bytes, dict[str, Endpoint]] = {
            path: {"GET": work}
            for path, work in {
                b"/": self.door,
                b"/livez": self.is_alive,
                b"/readyz": self.is_ready,
                b"/metrics": self.metrics,
                b"/v1/openapi.json": self.description,
                b"/openapi.json": self.description_of_report,
                b"/docs": self.page,
            }.items()
        }

    async def door(self, exchange: Exchange) -> None:
        """Redirect a browser that names no path to the description of the API."""
        await exchange.answer(307, b"see /docs and /console\n", TEXT, [(b"location", b"/docs")])

    async def is_alive(self, exchange: Exchange) -> None:
        await exchange.answer(200, b"ok\n", TEXT)

    async def is_ready(self, exchange: Exchange) -> None:
        """Tell whether the store answers and grants every connection that the node needs."""
        broker = self._desk.broker
        if problem := broker.store.problem():
            await exchange.answer(503, f"the store: {problem}\n".encode(), TEXT)
        elif await in_time(broker.actors.answers(), READY_SECONDS):
            await exchange.answer(200, b"ready\n", TEXT)
        else:
            await exchange.answer(503, b"the store does not answer\n", TEXT)

    async def metrics(self, exchange: Exchange) -> None:
        await exchange.answer(200, await self._desk.metrics.text(), metrics.CONTENT_TYPE)

    async def description(self, exchange: Exchange) -> None:
        await exchange.answer(200, self._description)

    async def description_of_report(self, exchange: Exchange) -> None:
        await exchange.answer(200, self._description_of_report)

    async def page(self, exchange: Exchange) -> None:
        await exchange.answer(200, self._page, HTML, GUARDED)
