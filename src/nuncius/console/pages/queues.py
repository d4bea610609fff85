"""Queues: all of them, by depth or by name."""

from urllib.parse import quote

from fastapi import Request
from nicegui import ui

from nuncius.broker.observe.facts_page import Page, Wish
from nuncius.broker.observe.facts_queues import QueueFacts
from nuncius.console.context import Console
from nuncius.console.parts.doing import Form
from nuncius.console.parts.frame import frame
from nuncius.console.parts.table import Column, Paged, Row
from nuncius.console.parts.words import age, number, rate

COLUMNS = (
    Column("name", "Queue", "name", kind="link"),
    Column("depth", "Messages", "depth", number=True),
    Column("oldest", "Oldest", number=True),
    Column("put", "Put", number=True, wide=True),
    Column("taken", "Taken", number=True, wide=True),
    Column("consumers", "Consumers", number=True, wide=True),
    Column("leased", "In flight (unacknowledged)", number=True, wide=True),
    Column("waiting", "Awaiting redelivery", number=True, wide=True),
    Column("id", "Id", "id", number=True, wide=True),
)


def register(console: Console) -> None:
    @ui.page("/queues")
    async def queues(request: Request) -> None:
        with frame(console, request, "Queues", "queues") as made:
            if made.may_change:
                form = Form(
                    "New queue", "Make it", lambda f: console.changes.create_queue(made.visit.who, f["name"])
                )
                form.text("name", "Name")
                with ui.element("div").classes("buttons"):
                    ui.button("New queue", icon="add", on_click=form.open)
            table = Paged(
                "Queues",
                COLUMNS,
                look,
                Wish("depth", descending=True),
                searched="Search by name",
                empty="There is no queue yet. A client makes one, or nuncius queue create NAME.",
            )
            with ui.element("div").classes("card"):
                table.build()
            await made.live(table.refresh)

    async def look(wish: Wish) -> Page[Row]:
        page = await console.facts.queues.page(wish)
        rates = (await console.traffic.look()).queues
        consumers = await console.nodes.consumers("queues")
        rows = tuple(
            row(each, *rates.get(each.queue_id, (0.0, 0.0)), consumers[each.queue_id]) for each in page.rows
        )
        return Page(rows, page.total, page.is_exact)


def row(facts: QueueFacts, put: float, taken: float, consumers: int) -> Row:
    return {
        "key": facts.queue_id,
        "id": facts.queue_id,
        "name": facts.name,
        "href": f"queue?name={quote(facts.name, safe='')}",
        "depth": number(facts.depth, is_exact=facts.is_exact),
        "oldest": age(facts.oldest),
        "put": rate(put),
        "taken": rate(taken),
        "consumers": number(consumers),
        "leased": number(facts.leased),
        "waiting": number(facts.waiting),
    }
