"""Subscriptions: their lag, what awaits redelivery, and dead letters."""

from urllib.parse import quote

from fastapi import Request
from nicegui import ui

from nuncius.broker.broker import Failure
from nuncius.broker.observe.facts_page import Page, Wish
from nuncius.broker.observe.facts_subscriptions import DeadLetters, SubscriptionFacts
from nuncius.console.context import Console
from nuncius.console.parts.frame import frame
from nuncius.console.parts.table import Column, Paged, Row, build_in_cards, cut
from nuncius.console.parts.words import ago, number, time

COLUMNS = (
    Column("subscriber", "Subscriber", "subscriber", kind="link"),
    Column("topic", "Topic", "name"),
    Column("lag", "Lag", "lag", number=True),
    Column("confirmed", "Last confirm", number=True, wide=True),
    Column("failures", "Awaiting redelivery", number=True, wide=True),
    Column("attempts", "Attempts", number=True, wide=True),
    Column("consumers", "Consumers", number=True, wide=True),
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
                    empty="There is no subscription yet.",
                ),
                Paged("Awaiting redelivery", FAILURES, failures, empty="Nothing awaits redelivery."),
                Paged("Dead letters", DEAD, dead, empty="There are no dead letters."),
            )
            await made.live(build_in_cards(tables))

    async def look(wish: Wish) -> Page[Row]:
        page = await console.facts.subscriptions.page(wish)
        connected = await console.nodes.consumers("subscriptions")
        rows = tuple(row(each, connected[each.subscription_id]) for each in page.rows)
        return Page(rows, page.total, page.is_exact)

    async def failures(wish: Wish) -> Page[Row]:
        found = await console.facts.subscriptions.awaiting(MOST_FAILURES)
        return cut([failure(each) for each in found], wish)

    async def dead(wish: Wish) -> Page[Row]:
        return cut([letters(each) for each in await console.facts.subscriptions.dead_letters()], wish)


def row(facts: SubscriptionFacts, connected: int) -> Row:
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
        "consumers": number(consumers(facts, connected)),
        "kind": kind(facts),
    }


def consumers(facts: SubscriptionFacts, connected: int) -> int:
    """Count consumers: members of a group, an active consumer over HTTP, and connections."""
    return facts.members + facts.is_consuming + connected


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
