"""Subscriptions: who is how far behind, what failed, and what nobody could take."""

from typing import Any
from urllib.parse import quote

from fastapi import Request
from nicegui import ui

from nuncius.broker.broker import Failure
from nuncius.broker.facts_page import Page, Wish
from nuncius.broker.facts_subscriptions import DeadLetters, SubscriptionFacts
from nuncius.console.context import Console
from nuncius.console.parts.frame import frame
from nuncius.console.parts.table import Column, Paged, Row
from nuncius.console.parts.words import ago, number, time

COLUMNS = (
    Column("subscriber", "Subscriber", "subscriber", kind="link"),
    Column("topic", "Topic", "name"),
    Column("lag", "Behind by", "lag", number=True),
    Column("confirmed", "Last confirm", number=True, wide=True),
    Column("failures", "Failed", number=True, wide=True),
    Column("attempts", "Attempts", number=True, wide=True),
    Column("members", "Members", number=True, wide=True),
    Column("kind", "Kind", wide=True),
)
FAILURES = (
    Column("destination", "Queue or topic"),
    Column("subscriber", "Subscriber", wide=True),
    Column("place", "Message", number=True),
    Column("attempts", "Attempts", number=True),
    Column("last", "Last failure", number=True, wide=True),
    Column("due", "Next attempt", wide=True),
    Column("reason", "Reason"),
)
DEAD = (
    Column("name", "Dead letters in", kind="link"),
    Column("kind", "Kind"),
    Column("origin", "They came from", wide=True),
    Column("count", "Messages", number=True),
)
MOST_FAILURES = 1000


def register(console: Console) -> None:
    @ui.page("/subscriptions")
    async def subscriptions(request: Request, search: str = "") -> None:
        with frame(console, request, "Subscriptions", "subscriptions") as made:
            wish = Wish("lag", descending=True, search=search)
            tables = (
                Paged(
                    "Subscriptions",
                    COLUMNS,
                    look,
                    wish,
                    searched="Search by topic or subscriber",
                    empty="Nobody has subscribed to a topic yet.",
                ),
                Paged("Failed, come again", FAILURES, failures, empty="Nothing failed."),
                Paged("Dead letters", DEAD, dead, empty="There are no dead letters."),
            )
            for table in tables:
                with ui.element("div").classes("card"):
                    table.build()

            async def refresh() -> None:
                for table in tables:
                    await table.refresh()

            await made.live(refresh)

    async def look(wish: Wish) -> Page[Row]:
        page = await console.facts.subscriptions.page(wish)
        return Page(tuple(map(row, page.rows)), page.total, page.is_exact)

    async def failures(wish: Wish) -> Page[Row]:
        found = await console.facts.subscriptions.failures(MOST_FAILURES)
        return _cut([failure(each) for each in found], wish)

    async def dead(wish: Wish) -> Page[Row]:
        return _cut([letters(each) for each in await console.facts.subscriptions.dead_letters()], wish)


def _cut(rows: list[dict[str, Any]], wish: Wish) -> Page[Row]:
    return Page(tuple(rows[wish.offset : wish.offset + wish.limit]), len(rows))


def row(facts: SubscriptionFacts) -> Row:
    where = f"subscription?topic={quote(facts.topic, safe='')}&name={quote(facts.subscriber, safe='')}"
    return {
        "key": facts.subscription_id,
        "subscriber": facts.subscriber,
        "href": where,
        "topic": facts.topic,
        "lag": number(facts.lag),
        "confirmed": ago(facts.confirmed_at),
        "failures": number(facts.failures),
        "attempts": number(facts.attempts),
        "members": number(facts.members),
        "kind": kind(facts),
    }


def kind(facts: SubscriptionFacts) -> str:
    if facts.consumer_id is not None:
        return f"consumer {facts.consumer_id}"
    if facts.members:
        return "group"
    return "durable" if facts.is_durable else "while connected"


def failure(facts: Failure) -> Row:
    place = str(facts.id) if facts.partition is None else f"{facts.partition}:{facts.id}"
    return {
        "key": f"{facts.destination} {facts.subscriber} {place}",
        "destination": facts.destination,
        "subscriber": facts.subscriber or "",
        "place": place,
        "attempts": facts.attempts,
        "last": ago(facts.last_failure),
        "due": time(facts.due_at),
        "reason": facts.reason or "",
    }


def letters(facts: DeadLetters) -> Row:
    return {
        "key": f"{facts.kind} {facts.name}",
        "name": facts.name,
        "href": f"{facts.kind}?name={quote(facts.name, safe='')}",
        "kind": facts.kind,
        "origin": facts.origin,
        "count": number(facts.count),
    }
