"""One queue: its messages, and changes to them."""

from typing import Any

from fastapi import Request
from nicegui import ui

from nuncius.broker.errors import NotFound
from nuncius.broker.model import Message, Queue
from nuncius.broker.observe.facts_actions import DEAD
from nuncius.broker.observe.facts_page import Page, Wish
from nuncius.broker.observe.facts_queues import BOUND, MessageFacts, QueueFacts, WholeMessage
from nuncius.console.context import Console
from nuncius.console.parts import bodies
from nuncius.console.parts.cards import Bars, Cards
from nuncius.console.parts.chosen import Chosen
from nuncius.console.parts.doing import EXPECTED, Form, say, sure
from nuncius.console.parts.frame import PageFrame, frame
from nuncius.console.parts.message import Button, Viewer
from nuncius.console.parts.table import Column, Paged, Row
from nuncius.console.parts.words import NONE, age, number, plural, rate, size, time

COLUMNS = (
    Column("id", "Message", kind="open"),
    Column("priority", "Priority", "priority", reverse=True, number=True),
    Column("age", "Age", "age", reverse=True, number=True),
    Column("sender", "From", wide=True),
    Column("receiver", "For", wide=True),
    Column("context", "Context", number=True, wide=True),
    Column("size", "Size", number=True, wide=True),
    Column("preview", "Preview"),
)

IN_FLIGHT, AWAITING = "In flight (unacknowledged)", "Awaiting redelivery"
FIGURES = ("Messages", "Oldest", "Put", "Taken", "Consumers", IN_FLIGHT, AWAITING)


def register(console: Console) -> None:
    @ui.page("/queue")
    async def queue(request: Request, name: str = "") -> None:
        with frame(console, request, name or "Queue", "queues") as made:
            try:
                found = await console.broker.queues.find(name)
            except EXPECTED as error:
                ui.label(str(error)).classes("card")
                return
            await QueuePage(made, found).build()


class QueuePage:
    def __init__(self, made: PageFrame, queue: Queue) -> None:
        self._frame = made
        self._who = made.visit.who
        self._changes = made.console.changes
        self._facts = made.console.facts.queues
        self._queue = queue
        self._is_dead = queue.name.startswith(DEAD)

    async def build(self) -> None:
        self._viewer = Viewer()
        if self._frame.may_change:
            self._buttons()
        self._cards = Cards(FIGURES)
        with ui.element("div").classes("card"):
            ui.label("Messages by priority").classes("section")
            self._bars = Bars([str(n) for n in range(1, 11)], "Messages by priority")
        chosen = Chosen("message")
        self._table = Paged(
            "Messages",
            COLUMNS,
            self._look,
            Wish("priority"),
            on_open=self._open,
            empty="The queue is empty.",
            on_choice=chosen.show if self._frame.may_change else None,
        )
        with ui.element("div").classes("card"):
            self._table.build()
            if self._frame.may_change:
                self._for_chosen(chosen)
        await self._frame.live(self._refresh)

    def _buttons(self) -> None:
        put = Form("Put a message", "Put", self._put)
        put.text("body", "Body", long=True).number("priority", "Priority, 10 is the highest", 5, 1, 10)
        with ui.element("div").classes("buttons"):
            ui.button("Put", icon="add", on_click=put.open)
            ui.button("Take", icon="outbox", on_click=self._take).props("flat")
            ui.button("Retry failed", icon="replay", on_click=self._retry).props("flat")
            ui.button("Purge", icon="delete_sweep", on_click=self._purge).props("flat color=negative")

    def _for_chosen(self, chosen: Chosen) -> None:
        move = Form("Move the selected messages", "Move", self._move).text("target", "To the queue")
        chosen.build()
        if self._is_dead:
            chosen.button("Move back", "undo", self._revive, "primary")
        chosen.button("Move", "drive_file_move", move.open, "primary")
        chosen.button("Remove", "delete", self._remove, "negative")

    async def _refresh(self) -> None:
        facts = await self._facts.one(self._queue.queue_id)
        if facts is None:
            raise NotFound(f"there is no queue {self._queue.name!r} any more")
        rates = (await self._frame.console.traffic.look()).queues
        consumers = (await self._frame.console.nodes.consumers("queues"))[facts.queue_id]
        self._show(facts, *rates.get(facts.queue_id, (0.0, 0.0)), consumers)
        await self._table.refresh()

    def _show(self, facts: QueueFacts, put: float, taken: float, consumers: int) -> None:
        self._cards.show(
            {
                "Messages": number(facts.depth, is_exact=facts.is_exact),
                "Oldest": age(facts.oldest),
                "Put": rate(put),
                "Taken": rate(taken),
                "Consumers": number(consumers),
                IN_FLIGHT: number(facts.leased),
                AWAITING: number(facts.waiting),
            },
            {"Messages": f"for {plural(facts.receivers, 'receiver')} by name"} if facts.receivers else {},
        )
        self._bars.show(facts.depths, None if facts.is_exact else BOUND)

    async def _look(self, wish: Wish) -> Page[Row]:
        page = await self._facts.messages(self._queue.queue_id, wish)
        return Page(tuple(map(row, page.rows)), page.total, page.is_exact)

    # Changes

    async def _put(self, fields: dict[str, Any]) -> str:
        body = (fields["body"] or "").encode()
        done = await self._changes.put(self._who, self._queue.name, body, int(fields["priority"] or 0))
        await self._refresh()
        return done

    async def _take(self) -> None:
        if not await sure("Take the next message? It is gone from the queue then.", "Take", danger=False):
            return
        try:
            taken = await self._changes.take(self._who, self._queue.queue_id)
        except EXPECTED as error:
            ui.notify(str(error), type="negative")
            return
        if taken is None:
            ui.notify("There is no message to take.")
        else:
            ui.notify(f"Took message {taken.message_id}.", type="positive")
            self._show_taken(taken)
        await self._refresh()

    def _show_taken(self, taken: Message) -> None:
        facts = {"Priority": str(taken.priority), "Size": size(len(taken.body))}
        name = bodies.file_name(self._queue.name, taken.message_id)
        headers = {"headers": taken.headers} if taken.headers else {}
        self._viewer.show(f"Message {taken.message_id}, taken", facts, headers, taken.body, name)

    async def _retry(self) -> None:
        if await sure("Redeliver everything that failed now?", "Retry", danger=False):
            await say(self._changes.retry(self._who, self._queue.queue_id))
            await self._refresh()

    async def _purge(self) -> None:
        question = f"Remove every message of {self._queue.name!r}? This cannot be undone."
        if await sure(question, "Purge"):
            await say(self._changes.purge_queue(self._who, self._queue.queue_id))
            await self._refresh()

    async def _move(self, fields: dict[str, Any]) -> str:
        done = await self._changes.move(
            self._who, self._queue.queue_id, self._table.selected, fields["target"] or ""
        )
        await self._settled()
        return done

    async def _remove(self) -> None:
        chosen = self._table.selected
        if await sure(f"Remove {plural(len(chosen), 'message')}? This cannot be undone.", "Remove"):
            await say(self._changes.remove(self._who, self._queue.queue_id, chosen))
            await self._settled()

    async def _revive(self) -> None:
        chosen = self._table.selected
        origin = self._queue.name.removeprefix(DEAD)
        if await sure(
            f"Move {plural(len(chosen), 'message')} back to {origin!r}?", "Move back", danger=False
        ):
            await say(self._changes.revive(self._who, self._queue.queue_id, chosen))
            await self._settled()

    async def _settled(self) -> None:
        self._table.unselect()
        await self._refresh()

    # One message

    async def _open(self, key: Any) -> None:
        try:
            found = await self._facts.message(self._queue.queue_id, int(key))
        except EXPECTED as error:
            ui.notify(str(error), type="warning")
            return
        facts = {
            "Priority": str(found.priority),
            "Arrived": time(found.arrived),
            "From": sender(found),
            "For": receiver(found),
            "Context": str(found.context),
        }

        async def remove() -> bool:
            if not await sure("Remove this message? This cannot be undone.", "Remove"):
                return False
            done = await say(self._changes.remove(self._who, found.queue_id, [found.message_id]))
            await self._refresh()
            return done

        buttons = [Button("Remove", remove, "delete")] if self._frame.may_change else []
        name = bodies.file_name(self._queue.name, found.message_id)
        self._viewer.show(f"Message {found.message_id}", facts, found.headers, found.body, name, buttons)


def row(facts: MessageFacts) -> Row:
    return {
        "key": facts.message_id,
        "id": str(facts.message_id),
        "priority": facts.priority,
        "age": age(facts.arrived),
        "sender": sender(facts),
        "receiver": receiver(facts),
        "context": facts.context or "",
        "size": size(facts.size),
        "preview": bodies.preview(facts.preview, facts.size),
    }


def sender(facts: MessageFacts | WholeMessage) -> str:
    return facts.sender or (f"client {facts.sender_id}" if facts.sender_id else NONE)


def receiver(facts: MessageFacts | WholeMessage) -> str:
    return facts.receiver or (f"client {facts.receiver_id}" if facts.receiver_id else "any consumer")
