"""Browse a topic: from an offset on, from a time on, or live."""

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from nuncius.broker.errors import InvalidInput
from nuncius.broker.observe.facts_page import Page, Wish
from nuncius.broker.observe.facts_topics import EntryFacts, TopicFactsReader
from nuncius.console.parts import bodies
from nuncius.console.parts.doing import EXPECTED
from nuncius.console.parts.table import Column, Paged, Row
from nuncius.console.parts.words import parse_time, size, time

AT_ONCE = 50
TAIL, OFFSET, TIME = "tail", "offset", "time"
MODES = {TAIL: "Live", OFFSET: "From an offset", TIME: "From a time"}

COLUMNS = (
    Column("offset", "Offset", kind="open"),
    Column("partition", "Partition", number=True, wide=True),
    Column("time", "Arrived", wide=True),
    Column("entry_key", "Key", wide=True),
    Column("publisher", "Publisher", wide=True),
    Column("size", "Size", number=True, wide=True),
    Column("preview", "Begins with"),
)


class Browser:
    def __init__(
        self, facts: TopicFactsReader, topic: str, on_open: Callable[[int, int], Awaitable[None]]
    ) -> None:
        self._facts = facts
        self._topic = topic
        self._on_open = on_open
        self._mode = TAIL
        self._partition = 1
        self._offset = 0
        self._time: Any = None
        self._shown: list[EntryFacts] = []

    def build(self, partitions: int) -> None:
        self._table = Paged(
            "Messages", COLUMNS, self._look, on_open=self._opened, empty="Nothing there.", rows=AT_ONCE
        )
        self._table.build()
        with self._table.head, ui.element("div").classes("buttons"):
            self._choice = ui.toggle(MODES, value=TAIL, on_change=self._changed).props("dense flat")
            options = {n: f"Partition {n}" for n in range(1, partitions + 1)}
            self._of = ui.select(options, value=1, on_change=self._turned)
            self._of.props('dense outlined aria-label="Partition"')
            # A shared field would have to be emptied while the visitor types into it.
            self._places = {
                OFFSET: self._field("Offset", "0"),
                TIME: self._field("Time, in UTC", "2026-01-31 12:00"),
            }
            self._go = ui.button("Go", on_click=self._gone).props("flat")
            self._older = ui.button(icon="chevron_left", on_click=lambda: self._step(-1))
            self._newer = ui.button(icon="chevron_right", on_click=lambda: self._step(1))
            self._older.props("flat round dense aria-label=Older")
            self._newer.props("flat round dense aria-label=Newer")
        self._arrange()

    def _field(self, label: str, hint: str) -> ui.input:
        field = ui.input(placeholder=hint).props(f'dense outlined aria-label="{label}"')
        field.on("keydown.enter", self._gone)
        return field

    async def refresh(self) -> None:
        if self._mode == TAIL:
            await self._table.refresh()

    async def _look(self, wish: Wish) -> Page[Row]:
        if self._mode == TAIL:
            found = list(reversed(await self._facts.tail(self._topic, AT_ONCE)))
        elif self._mode == TIME and self._time is not None:
            found = await self._facts.entries_since(self._topic, self._partition, self._time, AT_ONCE)
        else:
            found = await self._facts.entries(self._topic, self._partition, self._offset, AT_ONCE)
        self._shown = found
        del wish
        return Page(tuple(map(row, found)), len(found))

    async def _changed(self) -> None:
        self._mode = str(self._choice.value)
        self._arrange()
        await self._table.refresh()

    def _arrange(self) -> None:
        for element in (self._of, self._go, self._older, self._newer):
            element.set_visibility(self._mode != TAIL)
        for mode, field in self._places.items():
            field.set_visibility(self._mode == mode)

    async def _turned(self) -> None:
        """Show another partition from the same position. Does nothing if no position has been typed yet."""
        if self._mode == OFFSET or self._places[TIME].value:
            await self._gone()

    async def _gone(self) -> None:
        if self._mode == TAIL:  # pressed before the page learned that the mode has changed
            return
        try:
            self._begin(str(self._places[self._mode].value or ""))
            await self._table.refresh()
        except EXPECTED as error:
            ui.notify(str(error), type="negative")

    def _begin(self, text: str) -> None:
        self._partition = int(self._of.value or 1)
        if self._mode == TIME:
            since = parse_time(text)
            if since is None:
                raise InvalidInput("write a time as 2026-01-31 12:00, in UTC")
            self._time = since
        else:
            if not (text or "0").isdecimal() or len(text) > 18:
                raise InvalidInput("an offset is a number from 0")
            self._offset = int(text or 0)

    async def _step(self, direction: int) -> None:
        """Show the messages before or after the current ones."""
        if direction > 0 and self._shown:
            self._offset = self._shown[-1].offset + 1
        elif direction < 0:
            first = self._shown[0].offset if self._shown else self._offset
            self._offset = max(0, first - AT_ONCE)
        self._mode = self._choice.value = OFFSET
        self._places[OFFSET].value = str(self._offset)
        self._arrange()
        await self._table.refresh()

    async def _opened(self, key: Any) -> None:
        partition, _, offset = str(key).partition(":")
        if partition.isdecimal() and offset.isdecimal():
            await self._on_open(int(partition), int(offset))


def row(facts: EntryFacts) -> Row:
    return {
        "key": f"{facts.partition}:{facts.offset}",
        "offset": str(facts.offset),
        "partition": facts.partition,
        "time": time(facts.arrived),
        "entry_key": facts.key or "",
        "publisher": facts.publisher or "",
        "size": size(facts.size),
        "preview": bodies.preview(facts.preview, facts.size),
    }
