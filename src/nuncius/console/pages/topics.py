"""Topics: all of them, by name, by size or by age."""

import asyncio
from typing import Any
from urllib.parse import quote

from fastapi import Request
from nicegui import ui

from nuncius.broker.model import Retention
from nuncius.broker.observe.facts_page import Page, Wish
from nuncius.broker.observe.facts_topics import TopicFacts
from nuncius.console.context import Console
from nuncius.console.parts.frame import frame
from nuncius.console.parts.publishing import message_of, publish_form
from nuncius.console.parts.table import Column, Paged, Row
from nuncius.console.parts.words import ago, number, rate, seconds, size

COLUMNS = (
    Column("name", "Topic", "name", kind="link"),
    Column("entries", "Messages", "entries", number=True),
    Column("rate", "Published", number=True),
    Column("partitions", "Partitions", "partitions", number=True, wide=True),
    Column("size", "Size", number=True, wide=True),
    Column("retention", "Retention", wide=True),
    Column("subscriptions", "Subscriptions", number=True, wide=True),
    Column("latest", "Last message", number=True, wide=True),
)


def register(console: Console) -> None:
    @ui.page("/topics")
    async def topics(request: Request) -> None:
        with frame(console, request, "Topics", "topics") as made:
            if made.may_change:

                async def publish(fields: dict[str, Any]) -> str:
                    topic = fields["topic"] or ""
                    return await console.changes.publish(made.visit.who, topic, *message_of(fields))

                form = publish_form(publish, asks_topic=True)
                with ui.element("div").classes("buttons"):
                    ui.button("Publish", icon="add", on_click=form.open)
            table = Paged(
                "Topics",
                COLUMNS,
                look,
                Wish("name"),
                searched="Search by name",
                empty="There is no topic yet. The first message that is published to one makes it.",
            )
            with ui.element("div").classes("card"):
                table.build()
            await made.live(table.refresh)

    async def look(wish: Wish) -> Page[Row]:
        page = await console.facts.topics.page(wish)
        now = asyncio.get_running_loop().time()
        rates = [console.rates.of(f"topic {each.topic_id}", each.published, now) for each in page.rows]
        return Page(tuple(map(row, page.rows, rates)), page.total, page.is_exact)


def row(facts: TopicFacts, published: float | None) -> Row:
    return {
        "key": facts.topic_id,
        "name": facts.name,
        "href": f"topic?name={quote(facts.name, safe='')}",
        "entries": number(facts.entries),
        "rate": rate(published),
        "partitions": number(len(facts.partitions)),
        "size": size(facts.bytes),
        "retention": kept(facts.retention),
        "subscriptions": number(facts.subscriptions),
        "latest": ago(facts.latest),
    }


def kept(retention: Retention) -> str:
    """Describe a topic's retention in words."""
    if retention.mode == "subscribers":
        return "until all subscribers have it"
    if retention.mode == "time":
        return f"for {seconds(retention.seconds)}"
    if retention.mode == "size":
        return f"up to {size(retention.bytes)} a partition"
    return "unlimited"
