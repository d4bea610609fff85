"""The latency of the nodes' batches in the store, by kind."""

from nuncius.broker.observe.counters_model import ASK_FOR_ROWS
from nuncius.broker.observe.facts_page import Page, Wish
from nuncius.console.parts.table import Column, Paged, Row
from nuncius.console.parts.words import NONE, number
from nuncius.console.traffic import Latency, Picture

COLUMNS = (
    Column("name", "Batch"),
    Column("p50", "p50", number=True),
    Column("p95", "p95", number=True),
    Column("p99", "p99", number=True, wide=True),
    Column("batches", "Batches", number=True, wide=True),
    Column("rows", "Rows", number=True, wide=True),
)


class Latencies:
    def __init__(self, title: str) -> None:
        self._picture = Picture()
        self._table = Paged(title, COLUMNS, self._look, empty="Nothing has gone to the store yet.")

    def build(self) -> None:
        self._table.build()

    async def show(self, picture: Picture) -> None:
        self._picture = picture
        await self._table.refresh()

    async def _look(self, wish: Wish) -> Page[Row]:
        slowest = sorted(self._picture.latencies, key=lambda each: -(each.p95 or 0.0))
        rows = tuple(map(row, slowest[wish.offset : wish.offset + wish.limit]))
        return Page(rows, len(slowest))


def row(facts: Latency) -> Row:
    return {
        "key": facts.name,
        "name": facts.name,
        "p50": _ms(facts.p50),
        "p95": _ms(facts.p95),
        "p99": _ms(facts.p99),
        "batches": number(facts.batches),
        "rows": NONE if facts.name in ASK_FOR_ROWS else number(facts.rows),
    }


def _ms(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f} ms"
