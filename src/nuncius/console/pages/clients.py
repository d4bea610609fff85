"""Clients: open connections, named clients, and inactive producers and consumers."""

from datetime import datetime
from typing import Any

from fastapi import Request
from nicegui import ui

from nuncius.broker.observe.facts_clients import ActorFacts, ClientFacts
from nuncius.broker.observe.facts_page import Page, Wish
from nuncius.console.context import Console
from nuncius.console.nodes import CONNECTIONS, NodeAnswer
from nuncius.console.parts.chosen import Chosen
from nuncius.console.parts.doing import say, sure
from nuncius.console.parts.frame import frame
from nuncius.console.parts.table import Column, Paged, Row
from nuncius.console.parts.words import NONE, age, ago, number, plural, size

CONNECTED = (
    Column("connection", "Connection", "id"),
    Column("identity", "Client name", "identity"),
    Column("door", "Door", "door", wide=True),
    Column("peer", "From", "peer", wide=True),
    Column("mode", "Mode", "mode", wide=True),
    Column("since", "Connected for", "since", reverse=True, number=True, wide=True),
    Column("active", "Last active", "active", reverse=True, number=True),
    Column("in", "In", "in", number=True, wide=True),
    Column("out", "Out", "out", number=True, wide=True),
    Column("node", "Node", "node", wide=True),
)
CLIENTS = (
    Column("name", "Client", "name"),
    Column("id", "Id", "id", number=True),
    Column("mode", "Mode", "mode"),
)
ACTORS = (
    Column("kind", "Kind", "kind"),
    Column("id", "Id", "id", number=True),
    Column("state_name", "State", kind="state"),
    Column("active", "Last active", "activity", reverse=True, number=True),
    Column("topic", "Topic", "topic", wide=True),
    Column("lag", "Lag", number=True, wide=True),
)


def register(console: Console) -> None:
    @ui.page("/clients")
    async def clients(request: Request) -> None:
        with frame(console, request, "Clients", "clients") as made:
            only_inactive = False
            chosen = Chosen("connection")
            connected = Paged(
                "Connections",
                CONNECTED,
                connections,
                Wish("id"),
                searched="Search",
                empty="No client is connected.",
                on_choice=chosen.show if made.may_change else None,
            )

            async def actors(wish: Wish) -> Page[Row]:
                page = await console.facts.clients.actors(wish, only_inactive=only_inactive)
                return Page(tuple(map(actor_row, page.rows)), page.total)

            async def choose(event: Any) -> None:
                nonlocal only_inactive
                only_inactive = bool(event.value)
                await acting.refresh()

            async def disconnect() -> None:
                keys = connected.selected
                question = f"Disconnect {plural(len(keys), 'client')}? Most come back by themselves."
                if not await sure(question, "Disconnect"):
                    return
                for key in keys:
                    node, connection = str(key).split(" ", 1)
                    await say(console.changes.disconnect(made.visit.who, node, connection))
                connected.unselect()
                await connected.refresh()

            with ui.element("div").classes("card"):
                connected.build()
                if made.may_change:
                    chosen.build()
                    chosen.button("Disconnect", "link_off", disconnect, "negative")
            acting = Paged(
                "Producers, consumers and brokers",
                ACTORS,
                actors,
                Wish("activity"),
                searched="Search by topic",
                empty="There are none.",
            )
            with ui.element("div").classes("card"):
                acting.build()
                with acting.head:
                    ui.switch("Inactive only", on_change=choose)
            known = Paged("Clients with a name", CLIENTS, look, searched="Search by name")
            with ui.element("div").classes("card"):
                known.build()

            async def refresh() -> None:
                for table in (connected, acting, known):
                    await table.refresh()

            await made.live(refresh)

    async def connections(wish: Wish) -> Page[Row]:
        return page_of(await console.nodes.ask(CONNECTIONS), wish)

    async def look(wish: Wish) -> Page[Row]:
        page = await console.facts.clients.page(wish)
        return Page(tuple(map(client_row, page.rows)), page.total)


_ORDER = {
    "identity": "identity",
    "door": "door",
    "peer": "peer",
    "mode": "mode",
    "since": "since",
    "active": "last_active",
    "in": "bytes_in",
    "out": "bytes_out",
}


def page_of(answers: list[NodeAnswer] | Any, wish: Wish) -> Page[Row]:
    """Merge the connections of all nodes; search, sort and page them."""
    word = wish.search.lower()
    found = [
        (answer, each)
        for answer in answers
        for each in answer.said["connections"]
        if not word or any(word in str(each[name]).lower() for name in ("id", "identity", "peer", "door"))
    ]

    def place(item: tuple[NodeAnswer, dict[str, Any]]) -> tuple[Any, ...]:
        """Sort key. Equal values are ordered by the number at the end of the id."""
        answer, said = item
        value = answer.node if wish.sort == "node" else said.get(_ORDER.get(wish.sort, ""))
        known = (True, value) if value is not None else (False, 0)
        return (*known, said["door"], len(said["id"]), said["id"])

    found.sort(key=place, reverse=wish.descending)
    rows = [connection_row(*each) for each in found[wish.offset : wish.offset + wish.limit]]
    total = sum(sum(answer.said["counts"].values()) for answer in answers) if not word else len(found)
    return Page(tuple(rows), max(len(found), total if not word else 0))


def connection_row(answer: NodeAnswer, said: dict[str, Any]) -> Row:
    dialect = said["speaks"] if said["speaks"] != said["door"] else ""
    return {
        "key": f"{answer.node} {said['id']}",
        "connection": said["id"],
        "identity": said["identity"] or NONE,
        "door": f"{said['door']} ({dialect})" if dialect else said["door"],
        "peer": said["peer"],
        "mode": said["mode"],
        "since": age(datetime.fromisoformat(said["since"])),
        "active": ago(datetime.fromisoformat(said["last_active"])),
        "in": size(said["bytes_in"]),
        "out": size(said["bytes_out"]),
        "node": answer.node,
    }


def client_row(facts: ClientFacts) -> Row:
    mode = "read only" if facts.is_read_only else "full"
    return {"key": facts.client_id, "name": facts.name, "id": facts.client_id, "mode": mode}


def actor_row(facts: ActorFacts) -> Row:
    return {
        "key": f"{facts.kind} {facts.actor_id}",
        "kind": facts.kind,
        "id": facts.actor_id,
        "state": facts.state,
        "state_name": facts.state,
        "active": ago(facts.last_active),
        "topic": facts.topic or "",
        "lag": number(facts.lag),
    }
