"""Read a subscription without asyncio: messages in order, each once, across reconnects."""

from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress

from nuncius.client import errors
from nuncius.client.blocking.background import Background
from nuncius.client.model import Entry
from nuncius.client.subscription import AsyncSubscription


class Subscription:
    """A durable position in a topic. Iterate over it to read messages as they arrive, in one thread at a
    time.

    Requesting the next message marks the previous one as processed. Processed messages are confirmed in the
    background, many at once. With `auto_confirm=False`, only `confirm` confirms. After a crash, reading
    continues after the last confirmed message.
    """

    def __init__(self, background: Background, inner: AsyncSubscription, *, auto_confirm: bool) -> None:
        self.topic = inner.topic
        self.subscriber = inner.subscriber
        self._background = background
        self._inner = inner  # never confirms by itself: it does not know what this thread has processed
        self._auto_confirm = auto_confirm
        self._coming: Future[list[Entry]] | None = None
        self._batch: list[Entry] = []  # under iteration; a reader may leave it and come back
        self._at = 0
        self._done: dict[int, Entry] = {}  # by partition: the last processed entry
        self._closed = False

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Entry]:
        while True:
            self._batch, self._at = self.next_batch(), 0
            while self._at < len(self._batch):
                entry = self._batch[self._at]
                self._at += 1
                yield entry
                self._done[entry.partition] = entry
            self._confirm_soon()

    def batches(self) -> Iterator[list[Entry]]:
        """Read messages as they arrive, several at a time. Each batch is of one partition."""
        while True:
            batch = self.next_batch()
            yield batch
            self._done[batch[-1].partition] = batch[-1]
            self._confirm_soon()

    def next_batch(self, timeout: float | None = None) -> list[Entry]:
        """Return the next messages, at least one. Raises Timeout if none arrive in time, SubscriptionEnded if
        the subscription cannot be read any more."""
        if self._closed:
            raise errors.Closed("the subscription is closed")
        if self._at < len(self._batch):
            batch, self._batch = self._batch[self._at :], []
            return batch
        if self._coming is None:
            self._coming = self._background.submit(self._inner.next_batch)
        try:
            # Do not cancel on a timeout or Ctrl-C: a batch that has just arrived would be lost to the next
            # read.
            batch = self._coming.result(timeout)
        except TimeoutError:
            raise errors.Timeout("nothing was published in time") from None
        except CancelledError:
            raise errors.Closed("the subscription is closed") from None
        except Exception:
            self._coming = None
            raise
        self._coming = None
        return batch

    def confirm(self, entry: Entry) -> None:
        """Confirm this message and all before it in its partition. Returns when the position is stored."""
        self._background.call(self._inner.confirm, entry)

    def close(self) -> None:
        """Confirm the processed messages and stop reading. The subscription itself stays."""
        if self._closed:
            return
        self._closed = True
        if self._coming is not None:
            self._coming.cancel()
        with suppress(errors.Closed):  # the client, and its subscriptions with it, was closed before
            self._background.call(self._finish, dict(self._done) if self._auto_confirm else {})

    # Confirming

    def _confirm_soon(self) -> None:
        if self._auto_confirm and self._done:
            done, self._done = self._done, {}
            self._background.submit(self._confirm, done)

    async def _confirm(self, done: dict[int, Entry]) -> None:
        """Confirm from inside the loop."""
        self._inner.confirm_soon({partition: entry.offset + 1 for partition, entry in done.items()})

    async def _finish(self, done: dict[int, Entry]) -> None:
        await self._confirm(done)
        await self._inner.close()
