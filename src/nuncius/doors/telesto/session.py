"""Serve a connection in one of Telesto's framings: packets become broker calls, results become packets.

A connection's requests are carried out one after the other, in order; later ones wait in line, and count as
unanswered so that the wire stops reading from a client that sends too far ahead. Puts into one queue and
reads use callbacks; everything else is a task.

A read that finds no message is held for a moment and answered when a message arrives. The authors' client
sleeps for 50 ms after every empty answer, even if a message arrives meanwhile; holding the read for about as
long halves the number of empty answers, and is still soon enough for a client with other work.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from enum import Enum
from functools import partial
from typing import Any

from nuncius.broker import Broker
from nuncius.broker.errors import InvalidInput, NoSuchQueue, NotAllowed
from nuncius.broker.model import BY_PRIORITY, FULL, READ_ONLY, Client, Letter, Message, Stored, Waiter
from nuncius.broker.observe.consumers import Consumed
from nuncius.doors.replies import Reply, RequestLine, UnreadAnswers
from nuncius.doors.telesto import table
from nuncius.doors.telesto.codec import Broken, Codec, DoesNotFit, Event, UnreadablePacket
from nuncius.doors.telesto.errors import Refusal, error_packet, refusal
from nuncius.doors.telesto.requests import (
    AFTER_AUTHENTICATION,
    BEFORE_AUTHENTICATION,
    too_large,
    wire_message,
)
from nuncius.doors.telesto.table import Answer, Dialect, ErrorType, Request
from nuncius.doors.telesto.trace import NodeTrace, Stopwatch
from nuncius.doors.telesto.traced_line import TracedLine
from nuncius.doors.wire import Wire

log = logging.getLogger(__name__)

HOLD_SECONDS = 0.040
MAX_TEXT = 2000  # characters, as in the report's table of messages
REQUEST_COST = 300  # bytes of memory per waiting request, besides its frame
SEND_WINDOW = 256 << 10  # bytes of answers after which the client must have read them
ANONYMOUS = Client(0, "", FULL)


class SessionState(Enum):
    """Progress of a connection towards its end."""

    OPEN = "open"
    HALF_CLOSED = "half closed"
    """The client has closed its side. No message is taken for it any more: most such clients have gone."""
    CLOSING = "closing"
    """The node is shutting down."""


# The requests that are refused in each state, and the reason.
REFUSED: dict[SessionState, tuple[tuple[type[Request], ...], str]] = {
    SessionState.OPEN: ((), ""),
    SessionState.HALF_CLOSED: (
        (table.ReadMessage, table.ReadResponse),
        "the client has closed the connection, or its side; nothing was taken",
    ),
    SessionState.CLOSING: ((Request,), "the node is shutting down; nothing was done"),
}


class TelestoSession:
    speaks = "telesto"

    def __init__(
        self,
        broker: Broker,
        wire: Wire,
        dialect: Dialect,
        hold: float = HOLD_SECONDS,
        trace: NodeTrace | None = None,
    ) -> None:
        self.broker = broker
        self.wire = wire
        self.caller = wire.caller
        self.codec = Codec(dialect)
        self._hold = hold
        self._unread = UnreadAnswers(wire, SEND_WINDOW, self._go_on)
        self._line: RequestLine[Reply] = RequestLine(wire, self._begin, self._unread)
        self._watch: Stopwatch | None = None
        if trace is not None:
            self._watch = Stopwatch(trace)
            self._line = TracedLine(wire, self._begin, self._unread, self._watch)
        self._current = Reply(None, 0)  # the request under way
        self._enter(SessionState.OPEN)
        self._waiter: Waiter | None = None
        self._consumed = Consumed(self.broker.consumers)
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        wire.on_end = self._end
        self.stand_for(None)

    def stand_for(self, client: Client | None) -> None:
        """Set the client of this connection, and the requests that it may make."""
        self.client = client or ANONYMOUS
        self.caller.client, self.caller.is_read_only = self.client.name, self.client.mode == READ_ONLY
        self._direct: dict[type[Any], Callable[[Any], None]] = {table.Ping: self._ping}
        self._others = BEFORE_AUTHENTICATION
        if client is not None:
            self._direct[table.PutMessage] = self._put
            self._direct[table.ReadMessage] = self._read
            self._direct[table.ReadResponse] = self._read_response
            self._others = AFTER_AUTHENTICATION

    def _enter(self, state: SessionState) -> None:
        self._state = state
        self._refused, self._reason = REFUSED[state]

    # From the wire

    def received(self, data: bytes) -> None:
        if self._watch is not None:
            self._watch.arrived()
        events = self.codec.receive(data)
        if self._watch is not None:
            self._watch.parsed(len(events))
        if events:
            self.wire.is_greeted = True
        cost = self.wire.accept(data, len(events), REQUEST_COST, self.codec.incomplete)
        for event in events:
            self._line.enter(Reply(event, cost))
            cost = REQUEST_COST

    def lost(self) -> None:
        self._consumed.end()
        self._line.drop()
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self.broker.queues.leave(waiter)
            self._send(b"")

    async def finish(self) -> None:
        """Accept no more requests, answer a held read with "nothing", and finish the request under way."""
        self._enter(SessionState.CLOSING)
        self._give_up_read([])
        await self._close_when_answered()

    def break_off(self, reason: str) -> None:
        self.wire.send(self.codec.encode(refusal(0, ErrorType.IO_ERROR, reason)))
        self.wire.close()

    def _end(self) -> bool:
        """Answer the requests of a client that has closed its side."""
        if self._state is SessionState.OPEN:
            self._enter(SessionState.HALF_CLOSED)
        self._give_up_read(Refusal(ErrorType.IO_ERROR, REFUSED[SessionState.HALF_CLOSED][1]))
        if self._line.is_empty:
            return False
        self._ending = asyncio.get_running_loop().create_task(self._close_when_answered())
        return True

    def _give_up_read(self, answer: list[Message] | Exception) -> None:
        waiter = self._waiter
        if waiter is not None:
            self.broker.queues.leave(waiter)
            waiter.done(answer)

    async def _close_when_answered(self) -> None:
        await self.wire.all_answered()
        self.wire.close()

    # One request after the other

    def _go_on(self) -> None:
        self._line.advance()

    def _begin(self, reply: Reply) -> bool:
        if self._unread.is_much:
            return False
        if self._watch is not None:
            self._watch.began()
        self._current = reply
        event: Event = reply.request
        if isinstance(event, Request):
            self._handle(event)
        else:
            assert isinstance(event, UnreadablePacket | Broken)
            reply.is_last = isinstance(event, Broken)
            self._answer(refusal(event.packet_id, ErrorType.UNEXPECTED_PACKET, event.reason))
        return True

    def _handle(self, event: Request) -> None:
        direct, other = self._direct.get(type(event)), self._others.get(type(event))
        if isinstance(event, self._refused):
            self._fail(event, Refusal(ErrorType.IO_ERROR, self._reason))
        elif direct is not None:
            try:
                direct(event)
            except Exception as error:
                self._fail(event, error)
        elif other is not None:
            self._start(self._work(event, other(self, event)))
        else:
            name = type(event).__name__
            when = "after" if self.client is ANONYMOUS else "before"
            details = f"{name} is possible only {when} a client is registered or identified"
            self._fail(event, Refusal(ErrorType.UNEXPECTED_PACKET, details))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)

    async def _work(self, packet: Request, work: Coroutine[Any, Any, Answer]) -> None:
        try:
            answer = await work
            self._stored_by_now()
            data = self.codec.encode(answer)
        except Exception as error:
            data = self.codec.encode(error_packet(packet, error))
        self._send(data)

    # Answers

    def _answer(self, packet: Answer) -> None:
        self._send(self.codec.encode(packet))

    def _send(self, data: bytes) -> None:
        """Send a whole answer in one piece: the authors' client cannot join pieces."""
        self._line.answer(self._current, data)

    def _fail(self, packet: Request, error: Exception) -> None:
        self._answer(error_packet(packet, error))

    # Messages: callbacks, no tasks

    def _ping(self, packet: table.Ping) -> None:
        self._answer(table.Pong(packet.packet_id))

    def letter(self, message: table.Message) -> Letter:
        """Convert a message that the client puts. Its sender is always the client, whatever the message
        says."""
        if self.client.mode != FULL:
            raise NotAllowed(f"client {self.client.name!r} may only read")
        if len(message.text) > MAX_TEXT:
            raise InvalidInput(f"a message has at most {MAX_TEXT} characters, not {len(message.text)}")
        return Letter(
            message.text.encode(),
            message.priority,
            self.client.client_id,
            message.receiver_id,
            message.context,
        )

    def _put(self, packet: table.PutMessage) -> None:
        letter = self.letter(packet.message)
        if packet.queue_ids:
            self._start(self._work(packet, self._others[table.PutMessage](self, packet)))
        else:
            self.broker.queues.put_soon(
                packet.message.queue_id, [letter], partial(self._stored, packet), caller=self.caller
            )

    def _stored_by_now(self) -> None:
        if self._watch is not None:
            self._watch.stored()

    def _stored(self, packet: table.PutMessage, stored: Stored | Exception) -> None:
        self._stored_by_now()
        if isinstance(stored, Exception):
            self._fail(packet, stored)
        else:
            self._answer(table.Success(packet.packet_id))

    def _read(self, packet: table.ReadMessage) -> None:
        self._take(packet, packet.queue_id, sender=packet.sender_id, mode=packet.mode)

    def _read_response(self, packet: table.ReadResponse) -> None:
        if not packet.queue_id or not packet.context:
            raise InvalidInput("the answer to a request is read with a queue and a context")
        self._take(packet, packet.queue_id, context=packet.context)

    def _take(
        self, packet: Request, queue_id: int, *, sender: int = 0, context: int = 0, mode: int = BY_PRIORITY
    ) -> None:
        self._consumed.note(queue_id)
        self._waiter = self.broker.queues.take_soon(
            queue_id,
            self.client.client_id,
            partial(self._taken, packet),
            sender=sender,
            context=context,
            mode=mode,
            wait=self._hold,
            caller=self.caller,
        )

    def _taken(self, packet: Request, taken: list[Message] | Exception) -> None:
        self._waiter = None
        self._stored_by_now()
        if isinstance(taken, NoSuchQueue):
            taken = []  # a missing queue counts as empty
        if isinstance(taken, Exception):
            self._fail(packet, taken)
        elif not taken:
            self._fail(packet, Refusal(ErrorType.NO_MESSAGES_RETRIEVED, "there is no message"))
        else:
            answer = table.ReadMessageResponse(packet.packet_id, [wire_message(taken[0])])
            try:
                data = self.codec.encode(answer)
            except DoesNotFit:
                self._return(packet, taken[0])
            else:
                self._send(data)

    def _return(self, packet: Request, message: Message) -> None:
        """Put back a message of another protocol that is too large for this one."""
        self.broker.queues.put_back([message], partial(self._returned, packet, message))

    def _returned(self, packet: Request, message: Message, stored: Stored | Exception) -> None:
        if isinstance(stored, Exception):
            log.error("a message could not be put back", extra={"queue_id": message.queue_id})
            self._fail(packet, stored)
        else:
            self._fail(packet, too_large(wire_message(message)))
