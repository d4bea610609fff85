"""Take and Lease requests of one connection: their queue's lookup, their wait, and their answer.

They use callbacks instead of tasks, because every message takes this path.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from nuncius.broker.errors import InvalidInput
from nuncius.broker.model import Leased, Message, Queue, Waiter
from nuncius.broker.observe.consumers import Consumed
from nuncius.doors.native.convert import seconds, wire_leased, wire_message
from nuncius.doors.native.held import Held
from nuncius.wire import packets
from nuncius.wire.packets import ErrorCode

if TYPE_CHECKING:
    from nuncius.doors.native.session import NativeSession as Session

Answer = Callable[[Any], None]
"""Callback for the messages, an exception, or None when the node shuts down."""


class Takes:
    def __init__(self, session: "Session", held: Held) -> None:
        self._session = session
        self._queues = session.broker.queues
        self._held = held
        self._seeking: dict[int, Answer] = {}  # requests whose queue is being looked up
        self._waiters: dict[int, Waiter] = {}
        self._consumed = Consumed(session.broker.consumers)
        session.wire.on_writable = self._resume

    def take(self, packet: packets.Take, cost: int) -> None:
        self._check_number(packet.request)
        self._seek(packet, partial(self._taken, packet.request, cost))

    def lease(self, packet: packets.Lease, cost: int) -> None:
        self._check_number(packet.request)
        self._held.expect(packet.limit)
        self._seek(packet, partial(self._leased, packet.request, packet.limit, cost))

    def withdraw(self, request: int) -> None:
        """Answer a waiting request with no messages."""
        answer = self._seeking.pop(request, None)
        if answer is not None:
            answer([])
        waiter = self._waiters.pop(request, None)
        if waiter is not None:
            self._queues.leave(waiter)
            waiter.done([])

    def send_away(self) -> None:
        """End all waiting requests: the connection or the node ends."""
        self._consumed.end()
        for waiter in list(self._waiters.values()):
            self._queues.leave(waiter)
            waiter.done(None)
        while self._seeking:
            _, answer = self._seeking.popitem()
            answer(None)

    def _check_number(self, request: int) -> None:
        if request in self._seeking or request in self._waiters:
            raise InvalidInput("there is a Take or Lease with that request id already")

    def _seek(self, packet: packets.Take | packets.Lease, answer: Answer) -> None:
        self._seeking[packet.request] = answer
        self._queues.names.when_known(packet.queue, partial(self._found, packet, answer))

    def _found(self, packet: packets.Take | packets.Lease, answer: Answer, queue: Queue | Exception) -> None:
        if self._seeking.get(packet.request) is not answer:
            return  # withdrawn meanwhile
        del self._seeking[packet.request]
        if isinstance(queue, Exception):
            answer(queue)
            return
        try:
            waiter = self._wait(packet, queue.queue_id, answer)
        except Exception as error:
            answer(error)
        else:
            self._waiters[packet.request] = waiter

    def _wait(self, packet: packets.Take | packets.Lease, queue_id: int, answer: Answer) -> Waiter:
        self._consumed.note(queue_id)
        if isinstance(packet, packets.Take):
            return self._queues.take_soon(
                queue_id,
                self._session.client.client_id,
                answer,
                sender=packet.sender,
                context=packet.context,
                mode=packet.mode,
                limit=packet.limit,
                wait=seconds(packet.wait_ms),
                caller=self._session.caller,
                is_stalled=self._session.wire.is_stalled,
            )
        return self._queues.lease_soon(
            queue_id,
            self._session.client.client_id,
            answer,
            limit=packet.limit,
            wait=seconds(packet.wait_ms),
            caller=self._session.caller,
            is_stalled=self._session.wire.is_stalled,
        )

    def _resume(self) -> None:
        """Go on with the waiting requests: the client reads again."""
        for waiter in list(self._waiters.values()):
            self._queues.resume(waiter)

    def _taken(self, request: int, cost: int, taken: list[Message] | Exception | None) -> None:
        self._waiters.pop(request, None)
        if taken is None:
            self._session.refuse(request, cost, ErrorCode.CLOSING, "the node is shutting down")
        elif isinstance(taken, Exception):
            self._session.fail(request, cost, taken)
        else:
            self._session.reply(cost, packets.Messages(request, [wire_message(m) for m in taken]))

    def _leased(self, request: int, limit: int, cost: int, leased: list[Leased] | Exception | None) -> None:
        self._waiters.pop(request, None)
        if leased is None or isinstance(leased, Exception):
            self._held.add(limit, [])
            self._taken(request, cost, leased)
        else:
            self._held.add(limit, leased)
            self._session.reply(cost, packets.Leased(request, [wire_leased(one) for one in leased]))
