"""Serve a connection of the native protocol: packets become broker calls, results become packets."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from nuncius import __version__
from nuncius.broker import Broker
from nuncius.broker.errors import InvalidInput, NotAllowed
from nuncius.broker.model import FULL, READ_ONLY, Client, Letter, Publisher, Queue, Stored
from nuncius.doors.native.delivery import Deliveries
from nuncius.doors.native.errors import error_packet
from nuncius.doors.native.held import Held
from nuncius.doors.native.queue_requests import QUEUE_REQUESTS
from nuncius.doors.native.takes import Takes
from nuncius.doors.native.topic_requests import TOPIC_REQUESTS
from nuncius.doors.replies import Reply, RequestLine
from nuncius.doors.wire import Wire
from nuncius.wire import codec as native
from nuncius.wire import packets
from nuncius.wire.packets import ErrorCode, Packet

NATIVE = "native"
ANONYMOUS = Client(0, "", FULL)
OTHER_REQUESTS = {**TOPIC_REQUESTS, **QUEUE_REQUESTS}
INTO_ONE = "put into one queue"
REQUEST_COST = 300  # bytes of memory per open request, besides its frame


class NativeSession:
    speaks = "native"

    def __init__(self, broker: Broker, wire: Wire) -> None:
        self.broker = broker
        self.wire = wire
        self.caller = wire.caller
        self.client = ANONYMOUS
        self.publisher: Publisher | None = None
        self._welcomed = False
        self._behind_hello: list[tuple[Packet, int]] | None = None  # requests that wait for Hello
        self._closing = False
        self._decoder = native.requests()
        self.replies = wire.replies
        self._held = Held(self)
        self._takes = Takes(self, self._held)
        self._tasks: dict[int, asyncio.Task[Packet]] = {}
        self._patient: set[int] = set()  # requests that wait for messages
        # Puts with a publisher's count begin in order. Those into one queue stay in order in the combiner; a
        # put into several queues is a transaction of its own, for which the others wait.
        self._counted_puts: RequestLine[Reply] = RequestLine(wire, _go)
        self._deliveries = Deliveries(broker, wire)
        self._handlers: dict[type[Packet], Callable[[Any, int], None]] = {
            packets.Publish: self._publish,
            packets.Put: self._put,
            packets.Take: self._takes.take,
            packets.Lease: self._takes.lease,
            packets.Settle: self._held.settle,
            packets.Release: self._held.release,
            packets.Confirm: self._deliveries.confirm,
        }

    # From the wire

    def received(self, data: bytes) -> None:
        broken: native.ProtocolError | None = None
        try:
            arrived = self._decoder.receive(data)
        except native.ProtocolError as error:
            arrived, broken = error.before, error
        cost = self.wire.accept(data, len(arrived), REQUEST_COST, self._decoder.incomplete)
        for packet in arrived:
            self._dispatch(packet, cost)
            cost = REQUEST_COST
        if broken is not None:
            self.break_off(str(broken))

    def break_off(self, reason: str) -> None:
        self._send(packets.Error(0, ErrorCode.PROTOCOL, reason))
        self.wire.close()

    def lost(self) -> None:
        self._closing = True
        self._decoder.clear()
        self._send_away()
        self._held.lost()
        for task in self._tasks.values():
            task.cancel()

    async def finish(self) -> None:
        """Accept no more requests, end those that wait, and answer those under way."""
        self._closing = True
        self._send_away()
        await self.wire.all_answered()
        self.wire.close()

    def _send_away(self) -> None:
        """End the requests that wait for messages, and all deliveries."""
        self._deliveries.close()
        self._takes.send_away()
        for request in self._patient:
            self._tasks[request].cancel()

    def _dispatch(self, packet: Any, cost: int) -> None:
        kind = type(packet)
        handler = self._handlers.get(kind)
        if self._closing:
            self.refuse(packet.request, cost, ErrorCode.CLOSING, "the node is shutting down")
        elif kind is native.Unreadable:
            self.refuse(packet.request, cost, ErrorCode.PROTOCOL, packet.reason)
        elif self._behind_hello is not None:
            self._behind_hello.append((packet, cost))
        elif not self._welcomed and kind is not packets.Hello:
            self.refuse(packet.request, cost, ErrorCode.PROTOCOL, "say Hello first")
        elif handler is not None:
            try:
                handler(packet, cost)
            except Exception as error:
                self.fail(packet.request, cost, error)
        elif kind is packets.Credit:
            self._deliveries.credit(packet.request, packet.entries)
            self.wire.answered(cost)
        elif kind is packets.Withdraw:
            self._withdraw(packet.waiting)
            self.wire.answered(cost)
        else:
            self._start(packet, cost)

    # Answers

    def _send(self, packet: Packet) -> None:
        self.wire.send(native.encode(packet))

    def reply(self, cost: int, packet: Packet) -> None:
        self.wire.answer(native.encode(packet), cost)

    def refuse(self, request: int, cost: int, code: int, text: str) -> None:
        self.reply(cost, packets.Error(request, code, text))

    def fail(self, request: int, cost: int, error: Exception) -> None:
        self.reply(cost, error_packet(request, error))

    # Messages: callbacks, no tasks

    def _publish(self, packet: packets.Publish, cost: int) -> None:
        self.may_write()
        self.broker.topics.publish_soon(
            packet.topic,
            packet.bodies,
            partial(self._published, packet.request, cost),
            keys=packet.keys,
            headers=packet.headers,
            partition=packet.partition or None,
            publisher=self._counting(packet.count),
            count=packet.count,
            caller=self.caller,
        )

    def _published(self, request: int, cost: int, placed: Any) -> None:
        if isinstance(placed, Exception):
            self.fail(request, cost, placed)
        else:
            self.reply(
                cost,
                packets.Published(request, placed.partition, placed.offset, placed.skipped, placed.scattered),
            )

    def _put(self, packet: packets.Put, cost: int) -> None:
        self.may_write()
        letters = self._letters(packet)
        publisher = self._counting(packet.count)
        into_one = len(packet.queues) == 1
        if not into_one and len(letters) != 1:
            raise InvalidInput("put several messages into one queue, or one message into several")
        turn = Reply(None, 0, INTO_ONE if into_one else None)
        start = self._seek_and_put if into_one else self._start_put_into_all
        turn.request = partial(start, packet, cost, letters, publisher, turn)
        if publisher is None:
            turn.request()
        else:
            self._counted_puts.enter(turn)

    def _letters(self, packet: packets.Put) -> list[Letter]:
        zeros = [0] * len(packet.bodies)
        columns = (
            packet.priorities,
            zeros if packet.receivers is None else packet.receivers,
            zeros if packet.contexts is None else packet.contexts,
            [None] * len(packet.bodies) if packet.headers is None else packet.headers,
        )
        if any(len(column) != len(packet.bodies) for column in columns):
            raise InvalidInput("the columns of a Put are equally long")
        sender = self.client.client_id
        return [
            Letter(body, priority, sender, receiver, context, headers)
            for body, priority, receiver, context, headers in zip(packet.bodies, *columns, strict=True)
        ]

    def _seek_and_put(
        self, packet: packets.Put, cost: int, letters: list[Letter], publisher: Publisher | None, turn: Reply
    ) -> None:
        self.broker.queues.names.when_known(
            packet.queues[0], partial(self._put_into, packet, cost, letters, publisher, turn)
        )

    def _put_into(
        self,
        packet: packets.Put,
        cost: int,
        letters: list[Letter],
        publisher: Publisher | None,
        turn: Reply,
        queue: Queue | Exception,
    ) -> None:
        done = partial(self._stored, packet.request, cost, None if publisher is None else turn)
        if isinstance(queue, Exception):
            done(queue)
            return
        try:
            self.broker.queues.put_soon(
                queue.queue_id, letters, done, publisher=publisher, count=packet.count, caller=self.caller
            )
        except Exception as error:
            done(error)

    def _start_put_into_all(
        self, packet: packets.Put, cost: int, letters: list[Letter], publisher: Publisher | None, turn: Reply
    ) -> None:
        task = self._begin(packet.request, cost, self._put_into_all(packet, letters[0], publisher))
        if publisher is not None:
            task.add_done_callback(lambda _: self._counted_puts.answer(turn, b""))

    async def _put_into_all(self, packet: packets.Put, letter: Letter, publisher: Publisher | None) -> Packet:
        ids = [(await self.broker.queues.names.find(name)).queue_id for name in packet.queues]
        stored = await self.broker.queues.put_into_all(
            ids, letter, publisher=publisher, count=packet.count, caller=self.caller
        )
        return packets.PutDone(packet.request, list(stored.ids), stored.skipped)

    def _stored(self, request: int, cost: int, turn: Reply | None, stored: Stored | Exception) -> None:
        if isinstance(stored, Exception):
            self.broker.queues.names.forget_all()  # the cached queue may have been deleted
            self.fail(request, cost, stored)
        else:
            self.reply(cost, packets.PutDone(request, list(stored.ids), stored.skipped))
        if turn is not None:
            self._counted_puts.answer(turn, b"")

    def _withdraw(self, request: int) -> None:
        self._takes.withdraw(request)
        task = self._tasks.get(request)
        if task is not None:
            task.cancel()

    def stand_for(self, client: Client) -> None:
        """Set the client of this connection."""
        self.client = client
        self.caller.client, self.caller.is_read_only = client.name, client.mode == READ_ONLY

    def may_write(self) -> None:
        if self.client.mode != FULL:
            raise NotAllowed(f"client {self.client.name!r} may only read")

    def _counting(self, count: int) -> Publisher | None:
        if not count:
            return None
        if self.publisher is None:
            raise InvalidInput("a count needs a publisher; name one in Hello")
        return self.publisher

    # Everything else: one task per request

    def _start(self, packet: Any, cost: int) -> None:
        if type(packet) is packets.Hello:
            work = self._hello(packet)
        elif type(packet) is packets.Attach:
            work = self._deliveries.attach(packet)
        elif type(packet) is packets.Detach:
            work = self._deliveries.detach(packet)
        else:
            work = OTHER_REQUESTS[type(packet)](self, packet)
        if type(packet) is packets.Hello and not self._welcomed:
            self._behind_hello = []
            self._begin(packet.request, cost, work).add_done_callback(self._go_on_behind_hello)
            return
        if type(packet) in (packets.Ask, packets.Fetch):
            self._patient.add(packet.request)
        self._begin(packet.request, cost, work)

    def _begin(self, request: int, cost: int, work: Coroutine[Any, Any, Packet]) -> "asyncio.Task[Packet]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[request] = task
        # A callback, because a task that is cancelled before it starts runs none of its code.
        task.add_done_callback(partial(self._worked, request, cost))
        return task

    def _worked(self, request: int, cost: int, task: "asyncio.Task[Packet]") -> None:
        if self._tasks.get(request) is task:
            del self._tasks[request]
            self._patient.discard(request)
        if task.cancelled():
            self.refuse(request, cost, ErrorCode.CLOSING, "withdrawn")
        elif (error := task.exception()) is None:
            self.reply(cost, task.result())
        elif isinstance(error, Exception):
            self.fail(request, cost, error)

    def _go_on_behind_hello(self, _: "asyncio.Task[Packet]") -> None:
        """Handle the requests that arrived behind Hello, in order."""
        behind, self._behind_hello = self._behind_hello or [], None
        for packet, cost in behind:
            self._dispatch(packet, cost)

    async def _hello(self, packet: packets.Hello) -> Packet:
        if self._welcomed:
            raise InvalidInput("we have met")
        if packet.client:
            self.stand_for(await self.broker.clients.find_or_register(packet.client, packet.mode))
        if packet.publisher:
            self.publisher = await self.broker.publishers.find(packet.publisher, lasting=packet.lasting)
        self._welcomed = self.wire.is_greeted = True
        limits = self.broker.limits
        return packets.Welcome(
            packet.request, self.client.client_id, limits.max_body, limits.max_batch, __version__
        )


def _go(put: Reply) -> bool:
    put.request()
    return True
