"""The overview: message rates, totals, connections, nodes, and alarms."""

from fastapi import Request
from nicegui import ui

from nuncius.broker.observe.facts import Overview
from nuncius.broker.observe.facts_page import Page, Wish
from nuncius.broker.observe.findings import ok
from nuncius.console.context import Console
from nuncius.console.parts.advice import Advices
from nuncius.console.parts.cards import Cards
from nuncius.console.parts.frame import frame
from nuncius.console.parts.latencies import Latencies
from nuncius.console.parts.svg import Sparkline
from nuncius.console.parts.table import Column, Paged, Row
from nuncius.console.parts.words import number, plural, rate, size
from nuncius.console.traffic import KINDS, Picture

DOORS = (
    Column("door", "Listener"),
    Column("connections", "Connections", number=True),
    Column("in", "In", number=True),
    Column("out", "Out", number=True),
    Column("acked", "Acknowledged", number=True, wide=True),
)
FIGURES = {
    "Messages in queues": "queues",
    "Messages in topics": "topics",
    "Highest lag": "subscriptions",
    "Awaiting redelivery": "subscriptions",
    "Dead letters": "subscriptions",
    "Connections": "clients",
    "Nodes": "cluster",
    "Store": "store",
}
ALL_IS_WELL = ok("all", "all is well")


def register(console: Console) -> None:
    @ui.page("/")
    async def overview(request: Request) -> None:
        with frame(console, request, "Overview", "overview") as made:
            page = OverviewPage(console)
            page.build()
            await made.live(page.refresh)


class OverviewPage:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._picture = Picture()

    def build(self) -> None:
        self._alarms = Advices()
        self._rates: dict[str, ui.label] = {}
        self._lines: dict[str, Sparkline] = {}
        with ui.element("div").classes("cards"):
            for kind, title in KINDS.items():
                with ui.element("div").classes("card"):
                    ui.label(title).classes("what")
                    self._rates[kind] = ui.label().classes("value")
                    self._lines[kind] = Sparkline(f"{title}, messages a second")
        self._cards = Cards(tuple(FIGURES), FIGURES)
        self._doors = Paged("Listeners", DOORS, self._look_at_doors, empty="No node has answered yet.")
        self._latencies = Latencies("Store batch latency")
        with ui.element("div").classes("two"):
            with ui.element("div").classes("card"):
                self._doors.build()
            with ui.element("div").classes("card"):
                self._latencies.build()

    async def refresh(self) -> None:
        self._picture = picture = await self._console.traffic.look()
        for kind, label in self._rates.items():
            label.set_text(rate(picture.rates.get(kind) if picture.processes else None))
            self._lines[kind].show(list(self._console.traffic.past[kind]))
        facts = await self._console.overview()
        self._figures(facts, picture)
        self._alarms.show(await self._console.alarms(facts) or (ALL_IS_WELL,))
        await self._doors.refresh()
        await self._latencies.show(picture)

    def _figures(self, facts: Overview, picture: Picture) -> None:
        connections = sum(door["connections"] for door in picture.doors.values())
        silent = f"{plural(picture.silent, 'process', 'es')} did not answer" if picture.silent else ""
        self._cards.show(
            {
                "Messages in queues": number(facts.messages),
                "Messages in topics": number(facts.entries),
                "Highest lag": number(facts.lag),
                "Awaiting redelivery": number(facts.failures),
                "Dead letters": number(facts.dead_letters),
                "Connections": number(connections),
                "Nodes": f"{facts.nodes_alive} of {facts.nodes}",
                "Store": size(facts.bytes),
            },
            {
                "Messages in queues": f"in {plural(facts.queues, 'queue')}",
                "Messages in topics": f"in {plural(facts.topics, 'topic')}",
                "Highest lag": f"of {plural(facts.subscriptions, 'subscription')}",
                "Connections": f"{plural(facts.clients, 'client')} known by name",
                "Nodes": silent,
            },
        )

    async def _look_at_doors(self, wish: Wish) -> Page[Row]:
        del wish
        doors = self._picture.doors
        return Page(tuple(door_row(name, doors[name]) for name in sorted(doors)), len(doors))


def door_row(name: str, facts: dict[str, float]) -> Row:
    return {
        "key": name,
        "door": name,
        "connections": number(facts["connections"]),
        "in": rate(facts.get("published", 0.0) + facts.get("put", 0.0)),
        "out": rate(facts.get("delivered", 0.0) + facts.get("taken", 0.0) + facts.get("read", 0.0)),
        "acked": rate(facts.get("acked", 0.0)),
    }
