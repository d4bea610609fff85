"""A broker's end of the link: stores entries from other nodes, and reads entries for them."""

import asyncio
import contextlib
from functools import partial
from itertools import count
from typing import Any, cast

from nuncius.broker import Broker
from nuncius.broker.background.deadlines import DeadlineWatch
from nuncius.broker.caller import Caller
from nuncius.broker.errors import NoSuchTopic
from nuncius.broker.footprint import NO_TRANSPORT, STALLED, STOPPED, Footprint, cut_offs
from nuncius.broker.model import Publisher
from nuncius.broker.names import Names
from nuncius.cluster.link import codec as link_codec
from nuncius.cluster.link.codec import (
    LinkAnswers,
    LinkDecoder,
    LinkFailed,
    LinkFound,
    LinkRequests,
    LinkSent,
    Look,
    Moved,
    Send,
)
from nuncius.cluster.own_store import OwnStore
from nuncius.store.calls.fetching import GONE, FetchCall

LINK = "link"
"""The door of calls that another node has forwarded."""
MAX_LOOK = 10_000
CLOSE_SECONDS = 5.0


class LinkServer:
    def __init__(self, broker: Broker, own: OwnStore | None = None) -> None:
        self.broker = broker
        self.own = own
        self.publishers: Names[Publisher] = Names(partial(broker.publishers.find, lasting=False))
        self.peers: set[LinkPeer] = set()
        self.watch = DeadlineWatch(broker.limits, lambda: self.peers)
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> int:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: LinkPeer(self), host, port)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Accept no new requests. Those in progress are answered."""
        if self._server is None:
            return
        self._server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*(peer.finish() for peer in list(self.peers)))
        self.hang_up()

    def hang_up(self) -> None:
        """Stop accepting connections and end the open ones."""
        if self._server is not None:
            self._server.close()
        for peer in list(self.peers):
            peer.end()


class LinkPeer(asyncio.Protocol):
    """The connection of another node."""

    _numbers = count(1)

    def __init__(self, server: LinkServer) -> None:
        self._server = server
        self._decoder = LinkDecoder(LinkRequests)
        self._answers = LinkAnswers([], [], [])
        self._open = 0  # unanswered requests
        self._sizes: dict[int, int] = {}  # bytes of entries to be stored, by request
        self._idle = asyncio.Event()
        self._idle.set()
        self._flushing = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._caller = Caller(LINK, f"{LINK}-{next(self._numbers)}")
        self._loop = asyncio.get_running_loop()
        self._server.peers.add(self)
        self._moved = 0
        self._heard_at = self._loop.time()
        self._footprint = Footprint(
            self._server.broker.pressure, self.transport, lambda: self._moved, self._cut_off
        )
        self._server.watch.begin()

    def connection_lost(self, error: Exception | None) -> None:
        self._footprint.end()
        self.transport = NO_TRANSPORT
        self._server.peers.discard(self)
        self._server.broker.pressure.forget(self._resume)

    def look(self, now: float) -> None:
        """End the connection if it has run out of time; see `DeadlineWatch`.
        It may be silent between frames."""
        footprint = self._footprint
        footprint.look(now)
        if footprint.is_stalled(now):
            footprint.cut_off(STALLED)
        elif (
            footprint.incomplete
            and self.transport.is_reading()
            and now - self._heard_at > self._server.broker.limits.progress_seconds
        ):
            footprint.cut_off(STOPPED)

    def _cut_off(self, reason: str) -> None:
        """Abort the connection. The other node sends unanswered requests again."""
        host, port, *_ = self.transport.get_extra_info("peername")
        cut_offs.note(self._caller, f"{host}:{port}", reason)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._moved += len(data)
        self._heard_at = self._loop.time()
        try:
            for requests in self._decoder.receive(data):
                self._open += len(requests.sends) + len(requests.looks)
                self._idle.clear()
                for send in requests.sends:
                    self._send(send)
                for look in requests.looks:
                    self._look(look)
        except ValueError:
            self.transport.abort()
            return
        self._footprint.begin(self._decoder.incomplete)
        pressure = self._server.broker.pressure
        if pressure.is_high:
            self.transport.pause_reading()
            pressure.when_relieved(self._resume)

    def _resume(self) -> None:
        self._heard_at = self._loop.time()
        self.transport.resume_reading()

    async def finish(self) -> None:
        self.transport.pause_reading()
        await self._idle.wait()
        self._flush()

    def end(self) -> None:
        """End the connection. Answers are still sent if no request is open."""
        if self._idle.is_set():
            self.transport.close()
        else:
            self.transport.abort()

    # Entries to be stored

    def _send(self, send: Send) -> None:
        size = self._sizes[send.id] = sum(map(len, send.bodies))
        self._server.broker.pressure.add(size)
        own = self._server.own
        if send.store_id == 1:
            if send.publisher_id:
                self._store(send, Publisher(send.publisher_id, send.publisher))
            else:
                self._server.publishers.when_known(send.publisher, partial(self._store, send))
        elif own is not None and own.store_id == send.store_id:
            own.publish(send, partial(self._stored, send.id), self._caller)
        else:
            self._stored(send.id, Moved("this broker has no such store"))

    def _store(self, send: Send, publisher: Publisher | Exception) -> None:
        if isinstance(publisher, Exception):
            self._stored(send.id, publisher)
            return
        try:
            self._server.broker.topics.publish_soon(
                send.topic,
                send.bodies,
                partial(self._stored, send.id),
                keys=send.keys,
                headers=send.headers,
                partition=send.partition or None,
                publisher=publisher,
                count=send.count,
                caller=self._caller,
            )
        except Exception as error:
            self._stored(send.id, error)

    def _stored(self, number: int, result: Any) -> None:
        if isinstance(result, Exception):
            self._answer(link_codec.failure(number, result))
        else:
            self._answer(LinkSent(number, result.partition, result.offset, result.skipped, result.scattered))

    # Entries to be read

    def _look(self, look: Look) -> None:
        own = self._server.own
        if own is None:
            self._answer(link_codec.failure(look.id, Moved("this broker has no store of its own")))
            return
        done = partial(self._found, look.id)
        own.fetch(FetchCall(done, self._caller, look.partition_id, look.position, min(look.limit, MAX_LOOK)))

    def _found(self, number: int, result: Any) -> None:
        if result == GONE:
            result = NoSuchTopic("the topic was deleted")
        if isinstance(result, Exception):
            self._answer(link_codec.failure(number, result))
        else:
            self._answer(LinkFound(number, result))

    # Answers: one write a turn of the loop

    def _answer(self, answer: LinkSent | LinkFound | LinkFailed) -> None:
        if isinstance(answer, LinkSent):
            self._answers.sent.append(answer)
        elif isinstance(answer, LinkFound):
            self._answers.found.append(answer)
        else:
            self._answers.failed.append(answer)
        self._server.broker.pressure.remove(self._sizes.pop(answer.id, 0))
        self._open -= 1
        if not self._open:
            self._idle.set()
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        answers, self._answers = self._answers, LinkAnswers([], [], [])
        if (answers.sent or answers.found or answers.failed) and not self.transport.is_closing():
            data = link_codec.encode(answers)
            self._moved += len(data)
            self.transport.write(data)
            self._footprint.measure()
