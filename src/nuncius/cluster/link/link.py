"""A node's end of the connection to one broker.

All entries carry an identity: the caller's own, or one of the connection with a count. So entries in flight
on a broken connection can be sent again, to this broker or, if they belong to the common store, to another
one, and are stored once. The identity belongs to the connection and not to the node, because two connections
do not keep each other's order.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable
from typing import Any, cast

from nuncius.broker.model import Placed
from nuncius.cluster.link import codec as link_codec
from nuncius.cluster.link.codec import LinkAnswers, LinkDecoder, LinkRequests, Look, Send
from nuncius.store.calls.fetching import FetchCall

log = logging.getLogger(__name__)

CONNECT_SECONDS = 2.0
FRAME_BYTES = 4 << 20


class Forward:
    """Entries in flight to a broker. `done` receives a Placed or an exception. If the connection breaks,
    `lost` is called instead, and `was_sent` tells whether the broker may have seen the entries. Entries of
    one `stream` keep their order."""

    __slots__ = ("deadline", "done", "lost", "send", "stream", "was_sent")

    def __init__(
        self,
        send: Send,
        done: Callable[[Any], None],
        lost: Callable[["Forward"], None],
        stream: Hashable = None,
    ) -> None:
        self.send = send
        self.done = done
        self.lost = lost
        self.stream = stream
        self.was_sent = False
        self.deadline = 0.0  # end of the search for a broker, if there is none


class BrokerLink(asyncio.Protocol):
    """A connection to a broker, opened on first use. After a failure it `is_down` until `probe`
    reconnects."""

    def __init__(self, host: str, port: int, name: str, flushed: Callable[[], None] = lambda: None) -> None:
        self.host = host
        self.port = port
        self.is_down = False
        self._name = name  # of the node, for identities
        self._flushed = flushed
        self._connections = 0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._decoder = LinkDecoder(LinkAnswers)
        self._last_id = 0
        self._counts: dict[tuple[str, int], int] = {}  # by topic and partition, on this connection
        self._forwards: dict[int, Forward] = {}
        self._looks: dict[int, FetchCall] = {}
        self._sends: list[Send] = []
        self._asks: list[Look] = []
        self._bytes = 0
        self._heard_at = 0.0

    # Requests

    def forward(self, forward: Forward) -> None:
        """Send entries with the next frame."""
        send = forward.send
        self._last_id += 1
        send.id = self._last_id
        if not send.publisher:
            place = (send.topic, send.partition)
            count = self._counts.get(place, 0) + 1
            send.publisher = f"link-{self._name}-{self._connections}-{send.topic_id}-{send.partition}"
            send.count = count
            self._counts[place] = count + len(send.bodies) - 1
        self._note_begin()
        self._forwards[send.id] = forward
        self._sends.append(send)
        self._bytes += sum(map(len, send.bodies))
        self._flush_soon()

    def look(self, call: FetchCall) -> None:
        """Read entries of a partition in the broker's own store."""
        self._last_id += 1
        self._note_begin()
        self._looks[self._last_id] = call
        self._asks.append(Look(self._last_id, call.partition_id, call.position, call.limit))
        self._flush_soon()

    def probe(self, patience: float) -> None:
        """Connect if there is no connection. Abort one whose broker has not answered for `patience`
        seconds."""
        if self._transport is None:
            self._connect()
        elif self.is_waiting and self._loop.time() - self._heard_at > patience:
            log.warning("a broker does not answer", extra={"broker": f"{self.host}:{self.port}"})
            self._transport.abort()

    async def probed(self) -> None:
        """Wait until an attempt to connect has ended."""
        if self._connecting is not None:
            await asyncio.wait([self._connecting])

    def leave(self) -> None:
        """Close for good. Unanswered requests return to their senders."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()
        else:
            self._give_back()

    @property
    def is_waiting(self) -> bool:
        return bool(self._forwards or self._looks)

    def _note_begin(self) -> None:
        if not self.is_waiting:
            self._heard_at = self._loop.time()

    # The wire

    def _flush_soon(self) -> None:
        if self._transport is None:
            self._connect()
        elif len(self._sends) + len(self._asks) == 1:
            self._loop.call_soon(self._flush)
        elif self._bytes > FRAME_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._transport is None or not (self._sends or self._asks):
            return
        for send in self._sends:
            self._forwards[send.id].was_sent = True
        self._transport.write(link_codec.encode(LinkRequests(self._sends, self._asks)))
        self._sends, self._asks, self._bytes = [], [], 0
        self._flushed()

    def _connect(self) -> None:
        if self._connecting is None or self._connecting.done():
            self._connecting = self._loop.create_task(self._try())

    async def _try(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._loop.create_connection(lambda: self, self.host, self.port)
        except (OSError, TimeoutError):
            self._give_back()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._decoder = LinkDecoder(LinkAnswers)
        self._heard_at = self._loop.time()
        self.is_down = False
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            for answers in self._decoder.receive(data):
                self._answered(answers)
        except ValueError:
            log.exception("a broker's answer makes no sense")
            assert self._transport is not None
            self._transport.abort()

    def _answered(self, answers: LinkAnswers) -> None:
        for sent in answers.sent:
            forward = self._forwards.pop(sent.id)
            forward.done(Placed(sent.partition, sent.offset, sent.skipped, sent.scattered))
        for found in answers.found:
            self._looks.pop(found.id).done(found.entries)
        for failed in answers.failed:
            error = link_codec.error_of(failed)
            if failed.id in self._looks:
                self._looks.pop(failed.id).done(error)
            else:
                self._forwards.pop(failed.id).done(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._give_back()

    def _give_back(self) -> None:
        """Return unanswered requests to their senders, in order."""
        self.is_down = True
        self._connections += 1
        self._counts = {}
        forwards, self._forwards = self._forwards, {}
        looks, self._looks = self._looks, {}
        self._sends, self._asks, self._bytes = [], [], 0
        for forward in forwards.values():
            forward.lost(forward)
        for look in looks.values():
            look.done(None)  # as if there were no entries: the reader continues with other partitions
