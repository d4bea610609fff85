"""One subscription: its position in each partition, and changes to it."""

from datetime import datetime
from typing import Any
from urllib.parse import quote

from fastapi import Request
from nicegui import ui

from nuncius.broker.errors import InvalidInput, NoSuchSubscription
from nuncius.broker.observe.facts_page import Page, Wish
from nuncius.broker.observe.facts_subscriptions import SubscriptionFacts
from nuncius.console.context import Console
from nuncius.console.pages.subscriptions import consumers, kind
from nuncius.console.parts.cards import Cards
from nuncius.console.parts.doing import EXPECTED, Form, say, sure
from nuncius.console.parts.frame import PageFrame, frame
from nuncius.console.parts.plain import link
from nuncius.console.parts.table import Column, Paged, Row, cut
from nuncius.console.parts.words import age, ago, number, parse_time, time

PARTITIONS = (
    Column("partition", "Partition"),
    Column("position", "Confirmed to", number=True),
    Column("next", "Published to", number=True),
    Column("lag", "Lag", number=True),
)
MEMBERS = (
    Column("name", "Member"),
    Column("partitions", "Partitions"),
    Column("seen", "Last seen", number=True),
    Column("joined", "Joined", wide=True),
)
FIGURES = ("Lag", "Consumers", "Last confirm", "Awaiting redelivery", "Most attempts", "Kind")
EARLIEST, LATEST, TIME, OFFSET = "earliest", "latest", "time", "offset"
PLACES = {
    EARLIEST: "The beginning: replay everything that is kept",
    LATEST: "The end: skip everything",
    TIME: "A time",
    OFFSET: "An offset of one partition",
}


def register(console: Console) -> None:
    @ui.page("/subscription")
    async def subscription(request: Request, topic: str = "", name: str = "") -> None:
        with frame(console, request, name or "Subscription", "subscriptions") as made:
            try:
                facts = await find(console, topic, name)
            except EXPECTED as error:
                ui.label(str(error)).classes("card")
                return
            await SubscriptionPage(made, facts).build()


async def find(console: Console, topic: str, name: str) -> SubscriptionFacts:
    subscription = await console.broker.subscriptions.look_up(topic, name)
    facts = await console.facts.subscriptions.one(subscription.subscription_id)
    if facts is None:
        raise NoSuchSubscription(f"{name!r} is not subscribed to {topic!r}")
    return facts


class SubscriptionPage:
    def __init__(self, made: PageFrame, facts: SubscriptionFacts) -> None:
        self._frame = made
        self._console = made.console
        self._changes = made.console.changes
        self._facts = facts

    async def build(self) -> None:
        facts = self._facts
        if self._frame.may_change:
            self._buttons()
        self._cards = Cards(FIGURES)
        with ui.element("div").classes("card"):
            link(f"Topic {facts.topic}", f"topic?name={quote(facts.topic, safe='')}")
            self._reason = ui.label().classes("note")
            self._partitions = Paged("Partitions", PARTITIONS, self._look, rows=10)
            self._partitions.build()
        self._members = Paged("Members", MEMBERS, self._look_at_members)
        with ui.element("div").classes("card") as self._group:
            self._members.build()
        await self._frame.live(self._refresh)

    def _buttons(self) -> None:
        seek = Form("Where should it go on?", "Seek", self._seek).choice("where", PLACES, EARLIEST)
        seek.text("time", "Time, in UTC", hint="2026-01-31 12:00")
        seek.number("partition", "Partition", 1, 1, len(self._facts.positions))
        seek.number("offset", "Offset", 0, 0, 2**53)
        seek.only("where", {"time": TIME, "partition": OFFSET, "offset": OFFSET})
        with ui.element("div").classes("buttons"):
            ui.button("Seek", icon="my_location", on_click=seek.open)
            ui.button("Replay", icon="replay", on_click=self._replay).props("flat")
            ui.button("Remove", icon="delete", on_click=self._remove).props("flat color=negative")

    async def _refresh(self) -> None:
        self._facts = facts = await find(self._console, self._facts.topic, self._facts.subscriber)
        connected = await self._console.nodes.consumers("subscriptions")
        self._cards.show(
            {
                "Lag": number(facts.lag),
                "Consumers": number(consumers(facts, connected[facts.subscription_id])),
                "Last confirm": age(facts.confirmed_at),
                "Awaiting redelivery": number(facts.failures),
                "Most attempts": number(facts.attempts),
                "Kind": kind(facts),
            },
            {"Awaiting redelivery": ago(facts.last_failure) if facts.last_failure else ""},
        )
        self._reason.set_text(f"The last failure: {facts.reason}" if facts.reason else "")
        await self._partitions.refresh()
        self._group.set_visibility(facts.members > 0)
        await self._members.refresh()

    async def _look(self, wish: Wish) -> Page[Row]:
        facts = self._facts
        rows = [
            {
                "key": n,
                "partition": n,
                "position": number(position),
                "next": number(following),
                "lag": number(following - position),
            }
            for n, (position, following) in enumerate(zip(facts.positions, facts.nexts, strict=True), 1)
        ]
        return cut(rows, wish)

    async def _look_at_members(self, wish: Wish) -> Page[Row]:
        found = await self._console.broker.groups.members(self._facts.topic, self._facts.subscriber)
        rows = [
            {
                "key": each.member_id,
                "name": each.name,
                "partitions": ", ".join(map(str, each.partitions)) or "none",
                "seen": ago(each.last_seen),
                "joined": time(each.joined_at),
            }
            for each in found
        ]
        return cut(rows, wish)

    async def _seek(self, fields: dict[str, Any]) -> str:
        place = chosen(fields)
        done = await self._changes.seek(
            self._frame.visit.who, self._facts.topic, self._facts.subscriber, place
        )
        await self._refresh()
        return done

    async def _replay(self) -> None:
        question = f"Give {self._facts.subscriber!r} everything again that is kept in {self._facts.topic!r}?"
        if await sure(question, "Replay", danger=False):
            who = self._frame.visit.who
            await say(self._changes.seek(who, self._facts.topic, self._facts.subscriber, EARLIEST))
            await self._refresh()

    async def _remove(self) -> None:
        question = f"Remove {self._facts.subscriber!r} from {self._facts.topic!r}? Its place is lost."
        if await sure(question, "Remove"):
            who = self._frame.visit.who
            if await say(self._changes.unsubscribe(who, self._facts.topic, self._facts.subscriber)):
                ui.navigate.to("/subscriptions")


def chosen(fields: dict[str, Any]) -> str | datetime | dict[int, int]:
    """Return the position that the form names."""
    where = fields["where"]
    if where == TIME:
        time_given = parse_time(fields["time"] or "")
        if time_given is None:
            raise InvalidInput("write a time as 2026-01-31 12:00, in UTC")
        return time_given
    if where == OFFSET:
        return {int(fields["partition"] or 1): int(fields["offset"] or 0)}
    return str(where)
