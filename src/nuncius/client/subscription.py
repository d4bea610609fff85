"""Read a subscription: messages in order, each once, across reconnects."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Generator, Mapping
from typing import TYPE_CHECKING, Any, Self

from nuncius.client import errors
from nuncius.client.model import Entry
from nuncius.wire import packets

if TYPE_CHECKING:
    from nuncius.client.topic_calls import TopicCalls

PREFETCH = 10_000
BUFFERED_BYTES = 32 << 20
FIRST_PAUSE, LAST_PAUSE = 0.05, 2.0  # seconds between attempts to attach or to confirm


class AsyncSubscription:
    """A durable position in a topic. Iterate over it to read messages as they arrive.

    Requesting the next message marks the previous one as processed. Processed messages are confirmed in the
    background, many at once. With `auto_confirm=False`, only `confirm` confirms. After a crash, reading
    continues after the last confirmed message.
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
        self.topic: str = topic
        self.subscriber: str = subscriber
        self.number = number  # differs for a later one of the same name in a recreated topic
        self._client = client
        self._prefetch = prefetch
        self._auto_confirm = auto_confirm
        self._stream = 0  # request id of the current Attach
        self._batches: deque[list[Entry]] = deque()
        self._current: list[Entry] = []
        self._read = 0  # entries of it that were returned
        self._processed = 0  # entries of it that were returned before the last entry or batch
        self._arrived = asyncio.Event()
        self._buffered = 0
        self._consumed = 0  # entries since the last Credit
        self._next: dict[int, int] = {}  # by partition: the next expected offset
        self._dealt_with: dict[int, int] = {}  # by partition: the position to confirm
        self._attaching: asyncio.Task[None] | None = None
        self._confirming: asyncio.Task[None] | None = None
        self._failure: errors.NunciusError | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Entry]:
        while True:
            if self._read == len(self._current):
                await self._read_on(None)
            entry = self._current[self._read]
            self._processed = self._read
            self._read += 1
            yield entry

    async def batches(self) -> AsyncIterator[list[Entry]]:
        """Read messages as they arrive, several at a time. Each batch is of one partition."""
        while True:
            yield await self.next_batch()

    async def next_batch(self, timeout: float | None = None) -> list[Entry]:
        """Return the next messages, at least one. Raises Timeout if none arrive in time, SubscriptionEnded if
        the subscription cannot be read any more."""
        await self._read_on(timeout)
        batch = self._current[self._read :]
        self._processed = self._read
        self._read = len(self._current)
        return batch

    async def _read_on(self, timeout: float | None) -> None:
        """Replace the current batch with the next one, unless it has entries to return. The current one is
        processed: all of it was returned before."""
        if self._read < len(self._current):
            if self._closed:
                raise errors.Closed("the subscription is closed")
            return
        if self._auto_confirm and self._current:
            last = self._current[-1]
            self.confirm_soon({last.partition: last.offset + 1})
        self._current, self._read, self._processed = [], 0, 0
        if not self._stream and self._failure is None:
            self.attach_soon()
        while not self._batches:
            if self._failure is not None:
                raise self._new_error(self._failure)
            self._arrived.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._arrived.wait()
            except TimeoutError:
                raise errors.Timeout("nothing was published in time") from None
        self._current = self._batches.popleft()
        self._take(self._current)

    async def confirm(self, entry: Entry) -> None:
        """Confirm this message and all before it in its partition. Returns when the position is stored."""
        await self._client.confirm_place(self, entry.partition, entry.offset + 1)

    async def close(self) -> None:
        """Confirm the processed messages and stop reading. The subscription itself stays."""
        if self._closed:
            return
        self._closed = True
        await _end(self._attaching)
        if self._stream:
            self._client.detach(self._stream)
        self._batches.clear()
        self.failed(self._failure or errors.Closed("the subscription is closed"))
        if self._auto_confirm and self._processed:
            # What was returned last may not be processed; the entries before it are.
            entry = self._current[self._processed - 1]
            self._dealt_with[entry.partition] = entry.offset + 1
        await _end(self._confirming)
        await self._confirm_all()

    # For the client

    def attached(self, stream: int) -> None:
        self._stream = stream
        self._consumed = 0

    @property
    def prefetch(self) -> int:
        return self._prefetch

    @property
    def is_attaching(self) -> bool:
        return self._attaching is not None and not self._attaching.done()

    def attach_soon(self, pause: float = 0) -> None:
        """Ask the node for entries, after a pause. Retry until it accepts or refuses for good."""
        if not (self.is_attaching or self._closed):
            self._attaching = asyncio.get_running_loop().create_task(self._attach(pause))

    def broke_off(self, error: errors.NunciusError) -> None:
        """Attach again, or fail: the node sends no more entries."""
        if errors.is_temporary(error):
            self._stream = 0
            self.attach_soon(FIRST_PAUSE)
        else:
            self.failed(error)

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

    def failed(self, error: errors.NunciusError) -> None:
        """Record that reading cannot continue."""
        self._failure = error
        self._arrived.set()

    def _new_error(self, failure: errors.NunciusError) -> errors.NunciusError:
        """Create an error for one call. An exception that is raised repeatedly would keep all its
        tracebacks."""
        if isinstance(failure, errors.Closed):
            return errors.Closed(str(failure))
        ended = errors.SubscriptionEnded(
            f"subscription {self.subscriber!r} of topic {self.topic!r}: {failure}"
        )
        ended.__cause__ = failure
        return ended

    async def _attach(self, pause: float) -> None:
        while True:
            await asyncio.sleep(pause)
            try:
                await self._client.attach(self, self._prefetch)
            except errors.NunciusError as error:
                if errors.is_temporary(error):
                    pause = _longer(pause)
                    continue
                self.failed(error)
            return

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

    def confirm_soon(self, positions: Mapping[int, int]) -> None:
        """Confirm these positions, by partition, in the background."""
        self._dealt_with.update(positions)
        if self._dealt_with and (self._confirming is None or self._confirming.done()):
            self._confirming = asyncio.get_running_loop().create_task(self._confirm_all())

    async def _confirm_all(self) -> None:
        """Confirm all positions. Retry until the node accepts or refuses for good."""
        pause = FIRST_PAUSE
        while self._dealt_with:
            try:
                await self._confirm_some()
                pause = FIRST_PAUSE
            except errors.NunciusError as error:
                if self._closed:
                    return
                if not errors.is_temporary(error):
                    self.failed(error)
                    return
                await asyncio.sleep(pause)
                pause = _longer(pause)

    async def _confirm_some(self) -> None:
        for partition, position in list(self._dealt_with.items()):
            await self._client.confirm_place(self, partition, position)
            if self._dealt_with[partition] == position:  # else there is a later position to confirm
                del self._dealt_with[partition]


class PendingSubscription(Coroutine[Any, Any, AsyncSubscription]):
    """The result of `AsyncClient.subscribe`. Await it for the subscription, or use it in `async with`, which
    closes the subscription at the end."""

    def __init__(self, work: Coroutine[Any, Any, AsyncSubscription]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, AsyncSubscription]:
        return self._work.__await__()

    async def __aenter__(self) -> AsyncSubscription:
        self._subscription = await self._work
        return self._subscription

    async def __aexit__(self, *error: object) -> None:
        await self._subscription.close()

    # A task can be created from it, as from any coroutine.

    def send(self, value: Any) -> Any:
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()


async def _end(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait([task])


def _longer(pause: float) -> float:
    return min(max(2 * pause, FIRST_PAUSE), LAST_PAUSE)


def push_for(subscriptions: dict[int, AsyncSubscription], packet: Any) -> bool:
    """Pass a delivery to its subscription. Return False if the packet is not a delivery."""
    subscription = subscriptions.get(packet.request)
    if subscription is None:
        return False
    if type(packet) is packets.Entries:
        subscription.received(packet)
        return True
    if type(packet) is packets.Error and packet.code != packets.ErrorCode.CLOSING:
        del subscriptions[packet.request]
        subscription.broke_off(errors.from_packet(packet.code, packet.text))
    return False
