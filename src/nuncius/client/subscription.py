"""Reading a subscription: entries in order, each once, over every reconnect."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from nuncius.client import errors
from nuncius.client.model import Entry
from nuncius.doors.telesto import packets

if TYPE_CHECKING:
    from nuncius.client.topic_calls import TopicCalls

PREFETCH = 10_000
BUFFERED_BYTES = 32 << 20


class AsyncSubscription:
    """A durable place in a topic. Iterate over it to get entries as they come.

    Asking for the next entry says that the one before is dealt with; it is then confirmed, in the
    background and for many at once. With `auto_confirm=False` nothing is confirmed but by `confirm`.
    After a crash, reading goes on after the last confirmed entry.
    """

    def __init__(
        self,
        client: "TopicCalls",
        topic: str,
        subscriber: str,
        *,
        number: int,
        prefetch: int,
        auto_confirm: bool,
    ) -> None:
        self.topic = topic
        self.subscriber = subscriber
        self.number = number  # tells it from one of the same name, once the topic was deleted and made again
        self._client = client
        self._prefetch = prefetch
        self._auto_confirm = auto_confirm
        self._stream = 0  # request id of the Attach that is in force
        self._batches: deque[list[Entry]] = deque()
        self._current: list[Entry] = []
        self._read = 0  # entries of it that were handed out
        self._arrived = asyncio.Event()
        self._buffered = 0
        self._consumed = 0  # entries since the last Credit
        self._next: dict[int, int] = {}  # by partition: the offset that must come next
        self._dealt_with: dict[int, int] = {}  # by partition: to be confirmed
        self._confirming: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._closed = False

    async def __aenter__(self) -> "AsyncSubscription":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Entry]:
        return self._entries()

    async def _entries(self) -> AsyncIterator[Entry]:
        while True:
            if self._read == len(self._current):
                await self._next_batch(None)
            entry = self._current[self._read]
            self._read += 1
            yield entry

    async def batches(self) -> AsyncIterator[list[Entry]]:
        """Entries as they arrive, several at a time. A batch is of one partition."""
        while True:
            yield await self.next_batch()

    async def next_batch(self, timeout: float | None = None) -> list[Entry]:
        """The entries that come next, at least one; raises Timeout if none come in time."""
        if self._read == len(self._current):
            await self._next_batch(timeout)
        batch = self._current[self._read :]
        self._read = len(self._current)
        return batch

    async def _next_batch(self, timeout: float | None) -> None:
        """Puts the next batch in place of the one that is read to its end, and so dealt with."""
        if self._auto_confirm and self._current:
            last = self._current[-1]
            self._dealt_with[last.partition] = last.offset + 1
            self._confirm_soon()
        self._current, self._read = [], 0
        if not self._stream and self._failure is None:
            await self._client.attach(self, self._prefetch)
        while not self._batches:
            if self._failure is not None:
                raise self._failure
            self._arrived.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._arrived.wait()
            except TimeoutError:
                raise errors.Timeout("nothing was published in time") from None
        self._current = self._batches.popleft()
        self._take(self._current)

    async def confirm(self, entry: Entry) -> None:
        """This entry and all before it in its partition are dealt with; returns when that is stored."""
        await self._client.confirm_place(self, entry.partition, entry.offset + 1)

    async def close(self) -> None:
        """Confirms what is dealt with, and stops reading. The subscription stays."""
        if self._closed:
            return
        self._closed = True
        if self._stream:
            self._client.detach(self._stream)
        self._batches.clear()
        self.failed(self._failure or errors.Closed("the subscription is closed"))
        if self._auto_confirm and self._read > 1:
            # The last one that was handed out may not be dealt with; those before it are.
            entry = self._current[self._read - 2]
            self._dealt_with[entry.partition] = entry.offset + 1
        if self._confirming is not None:
            await self._confirming
        await self._confirm_all()

    # From the client

    def attached(self, stream: int) -> None:
        self._stream = stream
        self._consumed = 0

    @property
    def prefetch(self) -> int:
        return self._prefetch

    def received(self, packet: packets.Entries) -> None:
        expected = self._next.get(packet.partition, 0)
        known = max(0, expected - packet.first)  # delivered again after a reconnect
        self._next[packet.partition] = packet.first + max(known, len(packet.bodies))
        keys = packet.keys or (None,) * len(packet.bodies)
        headers = packet.headers or (None,) * len(packet.bodies)
        topic, partition, first = self.topic, packet.partition, packet.first
        batch = [
            Entry(body, time, header, topic, partition, first + i, key)
            for i, (body, time, header, key) in enumerate(
                zip(packet.bodies, packet.times, headers, keys, strict=True)
            )
        ]
        if known:
            self._credit(min(known, len(batch)))
            batch = batch[known:]
        if batch:
            self._batches.append(batch)
            self._buffered += sum(len(entry.body) for entry in batch)
            if self._buffered > BUFFERED_BYTES:
                self._client.pause(self)
            self._arrived.set()

    def failed(self, error: Exception) -> None:
        self._failure = error
        self._arrived.set()

    def _take(self, batch: list[Entry]) -> None:
        if self._buffered > BUFFERED_BYTES:
            self._client.resume(self)
        self._buffered -= sum(len(entry.body) for entry in batch)
        self._credit(len(batch))

    def _credit(self, entries: int) -> None:
        self._consumed += entries
        if self._consumed >= self._prefetch // 4:
            self._client.credit(self._stream, self._consumed)
            self._consumed = 0

    # Confirming

    def _confirm_soon(self) -> None:
        if self._confirming is None or self._confirming.done():
            self._confirming = asyncio.get_running_loop().create_task(self._confirm_all())

    async def _confirm_all(self) -> None:
        while self._dealt_with:
            dealt_with, self._dealt_with = self._dealt_with, {}
            try:
                for partition, position in dealt_with.items():
                    await self._client.confirm_place(self, partition, position)
            except errors.NunciusError as error:
                self.failed(error)
                return


def push_for(subscriptions: dict[int, AsyncSubscription], packet: Any) -> bool:
    """Gives deliveries to their subscription; False if the packet is none."""
    subscription = subscriptions.get(packet.request)
    if subscription is None:
        return False
    if type(packet) is packets.Entries:
        subscription.received(packet)
        return True
    if type(packet) is packets.Error and packet.code != packets.ErrorCode.CLOSING:
        del subscriptions[packet.request]
        subscription.failed(errors.from_packet(packet.code, packet.text))
    return False
