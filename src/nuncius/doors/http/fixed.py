"""Endpoints with fixed paths: the report's API, the pages, health checks.

Besides its own methods each has HEAD if GET changes nothing, OPTIONS, and an answer to every other method.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from nuncius.cluster.dialects import QueueDialect
from nuncius.doors.http.api.operations import PREFIX, Operation, allow
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.errors import problem
from nuncius.doors.http.exchange import Exchange
from nuncius.doors.http.queue_report.report import ReportApi, refuse
from nuncius.doors.http.web.origins import consumes
from nuncius.doors.http.web.pages import PlainPages

Endpoint = Callable[[Exchange], Awaitable[None]]
OTHER = ""  # stands for every method that a path does not support


def endpoints(
    desk: Desk, operations: Sequence[Operation], dialect: QueueDialect
) -> dict[bytes, dict[str, Endpoint]]:
    """Return the endpoints by path and method."""
    found = {
        path: _complete(path, methods, 400) for path, methods in ReportApi(desk, dialect).endpoints.items()
    }
    for path, methods in PlainPages(desk, operations).endpoints.items():
        found[path] = _complete(path, methods, 405)
    found[b"*"] = _complete(b"*", {}, 400)  # OPTIONS may ask about no path in particular
    return found


def _complete(path: bytes, methods: Mapping[str, Endpoint], status: int) -> dict[str, Endpoint]:
    """Add the methods that every path answers. `status` is for unsupported methods."""
    own = dict(methods)
    if "GET" in own and not consumes(path):
        own["HEAD"] = own["GET"]
    header = (b"allow", allow(own))

    async def options(exchange: Exchange) -> None:
        await exchange.nothing(204, [header])

    async def other(exchange: Exchange) -> None:
        message = f"There is no {exchange.method} at this path"
        if path.startswith(PREFIX):
            await exchange.answer(status, problem("method_not_allowed", message), headers=[header])
        else:
            await refuse(exchange, message, status, [header])

    return {**own, "OPTIONS": options, OTHER: other}
