"""The store: its size, obstacles to vacuum, slow batches, and recommendations."""

from fastapi import Request
from nicegui import ui

from nuncius.broker.observe.facts_page import Page, Wish
from nuncius.broker.observe.facts_store import StoreFacts
from nuncius.broker.observe.findings import ok, problems
from nuncius.console.context import Console
from nuncius.console.parts.advice import Advices
from nuncius.console.parts.cards import Cards
from nuncius.console.parts.frame import frame
from nuncius.console.parts.latencies import Latencies
from nuncius.console.parts.table import Column, Paged, Row, build_in_cards, cut
from nuncius.console.parts.words import age, ago, number, size

LIVE_SECONDS = 5.0
IN_ORDER = ok("all", "the store is in order; there is nothing to do")
TABLES = (
    Column("name", "Table"),
    Column("size", "Size", number=True),
    Column("indexes", "Indexes", number=True, wide=True),
    Column("live", "Rows", number=True),
    Column("dead", "Dead rows", number=True),
    Column("vacuumed", "Vacuumed", number=True, wide=True),
)
TRANSACTIONS = (
    Column("pid", "Process"),
    Column("open", "Open for", number=True),
    Column("who", "Client name"),
    Column("state", "State", wide=True),
    Column("query", "Last statement"),
)
PROCEDURES = (
    Column("name", "Procedure"),
    Column("calls", "Calls", number=True),
    Column("mean", "Mean", number=True),
    Column("total", "In all", number=True),
)


def register(console: Console) -> None:
    @ui.page("/store")
    async def store(request: Request) -> None:
        with frame(console, request, "Store", "store") as made:
            page = StorePage(console)
            page.build()
            await made.live(page.refresh, LIVE_SECONDS)


class StorePage:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._facts: StoreFacts

    def build(self) -> None:
        self._advice = Advices("Recommendations")
        self._cards = Cards(("Size", "Rows", "Dead rows", "Connections", "PostgreSQL", "Schema"))
        tables = (
            Paged(
                "Longest open transactions", TRANSACTIONS, self._transactions, empty="No transaction is open."
            ),
            Paged("Tables", TABLES, self._look_at_tables),
            Paged(
                "Procedures, as PostgreSQL measures them",
                PROCEDURES,
                self._procedures,
                empty="PostgreSQL measures them with track_functions = 'all'.",
            ),
        )
        self._latencies = Latencies("Store batch latency, the slowest first")
        with ui.element("div").classes("card"):
            self._latencies.build()
        self._refresh_tables = build_in_cards(tables)

    async def refresh(self) -> None:
        self._facts = facts = await self._console.facts.store()
        self._advice.show(problems(facts.findings()) or (IN_ORDER,))
        self._cards.show(
            {
                "Size": size(facts.bytes),
                "Rows": number(facts.live),
                "Dead rows": number(facts.dead),
                "Connections": f"{facts.connections} of {facts.max_connections}",
                "PostgreSQL": facts.version.split()[0],
                "Schema": str(facts.schema),
            }
        )
        await self._latencies.show(await self._console.traffic.look())
        await self._refresh_tables()

    async def _look_at_tables(self, wish: Wish) -> Page[Row]:
        return cut(
            [
                {
                    "key": each.name,
                    "name": each.name,
                    "size": size(each.bytes),
                    "indexes": size(each.index_bytes),
                    "live": number(each.live),
                    "dead": number(each.dead),
                    "vacuumed": ago(each.vacuumed_at, self._facts.now),
                }
                for each in self._facts.tables
            ],
            wish,
        )

    async def _transactions(self, wish: Wish) -> Page[Row]:
        return cut(
            [
                {
                    "key": each.pid,
                    "pid": str(each.pid),
                    "open": age(each.opened_at, self._facts.now),
                    "who": f"{each.user}, {each.application or 'no name'}, {each.address or 'this machine'}",
                    "state": each.state,
                    "query": each.query,
                }
                for each in self._facts.transactions
            ],
            wish,
        )

    async def _procedures(self, wish: Wish) -> Page[Row]:
        return cut(
            [
                {
                    "key": each.name,
                    "name": each.name,
                    "calls": number(each.calls),
                    "mean": f"{each.mean_ms:.2f} ms",
                    "total": f"{each.total_ms / 1000:.1f} s",
                }
                for each in self._facts.procedures
            ],
            wish,
        )
