"""One topic: its partitions, its messages, and changes to it."""

import asyncio
from typing import Any
from urllib.parse import quote

from fastapi import Request
from nicegui import ui

from nuncius.broker.observe.facts_actions import DEAD
from nuncius.broker.observe.facts_page import Page, Wish
from nuncius.broker.observe.facts_topics import PartitionFacts, TopicFacts
from nuncius.console.context import Console
from nuncius.console.pages.topics import kept
from nuncius.console.parts import bodies
from nuncius.console.parts.browser import Browser
from nuncius.console.parts.cards import Cards
from nuncius.console.parts.doing import EXPECTED, Form, say, sure
from nuncius.console.parts.frame import PageFrame, frame
from nuncius.console.parts.message import Button, Viewer
from nuncius.console.parts.plain import link
from nuncius.console.parts.publishing import message_of, publish_form
from nuncius.console.parts.table import Column, Paged, Row, cut
from nuncius.console.parts.words import NONE, age, number, rate, size, time

PARTITIONS = (
    Column("partition", "Partition"),
    Column("first", "First", number=True),
    Column("next", "Next", number=True),
    Column("entries", "Messages", number=True),
    Column("rate", "Published", number=True),
    Column("size", "Size", number=True, wide=True),
    Column("store", "Store", wide=True),
)

FIGURES = ("Messages", "Published", "Size, about", "Retention", "Subscriptions", "Last message")


def register(console: Console) -> None:
    @ui.page("/topic")
    async def topic(request: Request, name: str = "") -> None:
        with frame(console, request, name or "Topic", "topics") as made:
            try:
                facts = await console.facts.topics.one(name)
            except EXPECTED as error:
                ui.label(str(error)).classes("card")
                return
            await TopicPage(made, facts).build()


class TopicPage:
    def __init__(self, made: PageFrame, facts: TopicFacts) -> None:
        self._frame = made
        self._console = made.console
        self._changes = made.console.changes
        self._facts = facts
        self._name = facts.name

    async def build(self) -> None:
        self._viewer = Viewer()
        if self._frame.may_change:
            self._buttons()
        self._cards = Cards(FIGURES)
        self._partitions = Paged("Partitions", PARTITIONS, self._look, rows=10)
        with ui.element("div").classes("card"):
            self._partitions.build()
            with ui.element("div").classes("below"):
                link("Subscriptions of this topic", f"subscriptions?search={quote(self._name, safe='')}")
        self._browser = Browser(self._console.facts.topics, self._name, self._open)
        with ui.element("div").classes("card"):
            self._browser.build(len(self._facts.partitions))
        await self._frame.live(self._refresh)

    def _buttons(self) -> None:
        publish = publish_form(self._publish)
        self._again = Form("Publish this message again", "Publish", self._republish)
        self._again.text("target", "To the topic", self._name)
        with ui.element("div").classes("buttons"):
            ui.button("Publish", icon="add", on_click=publish.open)
            ui.button("Purge", icon="delete_sweep", on_click=self._purge).props("flat color=negative")

    async def _refresh(self) -> None:
        self._facts = facts = await self._console.facts.topics.one(self._name)
        now = asyncio.get_running_loop().time()
        published = self._console.rates.of(f"topic {facts.topic_id}", facts.published, now)
        self._cards.show(
            {
                "Messages": number(facts.entries),
                "Published": rate(published),
                "Size, about": size(facts.bytes),
                "Retention": kept(facts.retention),
                "Subscriptions": number(facts.subscriptions),
                "Last message": age(facts.latest),
            }
        )
        await self._partitions.refresh()
        await self._browser.refresh()

    async def _look(self, wish: Wish) -> Page[Row]:
        return cut([self._row(each) for each in self._facts.partitions], wish)

    def _row(self, facts: PartitionFacts) -> Row:
        now = asyncio.get_running_loop().time()
        where = "shared" if facts.store_id == 1 else f"store {facts.store_id}"
        return {
            "key": facts.partition,
            "partition": facts.partition,
            "first": number(facts.first),
            "next": number(facts.next),
            "entries": number(facts.entries),
            "rate": rate(self._console.rates.of(f"partition {facts.partition_id}", facts.next, now)),
            "size": size(facts.bytes),
            "store": where if facts.broker_id is None else f"{where}, broker {facts.broker_id}",
        }

    async def _publish(self, fields: dict[str, Any]) -> str:
        done = await self._changes.publish(self._frame.visit.who, self._name, *message_of(fields))
        await self._refresh()
        return done

    async def _purge(self) -> None:
        question = (
            f"Make every message of {self._name!r} unreadable, for all subscribers? This cannot be undone."
        )
        if await sure(question, "Purge"):
            await say(self._changes.purge_topic(self._frame.visit.who, self._name))
            await self._refresh()

    async def _republish(self, fields: dict[str, Any]) -> str:
        partition, offset = self._opened
        target = fields["target"] or ""
        return await self._changes.republish(self._frame.visit.who, self._name, partition, offset, target)

    async def _open(self, partition: int, offset: int) -> None:
        try:
            entry = await self._console.facts.topics.entry(self._name, partition, offset)
        except EXPECTED as error:
            ui.notify(str(error), type="warning")
            return
        self._opened = (partition, offset)
        facts = {
            "Partition": str(partition),
            "Offset": str(offset),
            "Arrived": time(entry.arrived),
            "Key": entry.key or "none",
            "Publisher": entry.publisher or NONE,
        }

        async def again() -> bool:
            self._again.open()
            return True

        async def revive() -> bool:
            origin = self._name.removeprefix(DEAD)
            question = f"Publish this anew to {origin!r}? All its subscribers get it."
            if not await sure(question, "Publish", danger=False):
                return False
            return await say(self._changes.revive_entry(self._frame.visit.who, self._name, partition, offset))

        buttons = []
        if self._frame.may_change:
            buttons.append(Button("Publish again", again, "replay"))
            if self._name.startswith(DEAD):
                buttons.append(Button("Back where it came from", revive, "undo"))
        title = f"{self._name}, offset {offset}"
        name = bodies.file_name(self._name, partition, offset)
        self._viewer.show(title, facts, entry.headers, entry.preview, name, buttons)
