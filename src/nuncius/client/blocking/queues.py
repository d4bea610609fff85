"""Queue methods of the synchronous client."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future

from nuncius.client.aio import AsyncClient
from nuncius.client.blocking.background import Background
from nuncius.client.blocking.lease import Lease
from nuncius.client.model import Body, Message, PutReceipt, QueueState

LONG_WAIT = 60.0  # seconds per request; `messages` and `leases` repeat the request


class SyncQueueCalls:
    _async: AsyncClient
    _background: Background

    def put(
        self,
        queue: str | Sequence[str],
        body: Body,
        *,
        priority: int = 5,
        receiver: int = 0,
        context: int = 0,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> PutReceipt:
        """Put a message into a queue and wait until it is stored. With several queues, it is put into all or
        none."""
        return self._background.ask(
            self._async.put,
            queue,
            body,
            priority=priority,
            receiver=receiver,
            context=context,
            headers=headers,
            timeout=timeout,
        )

    def put_soon(
        self,
        queue: str | Sequence[str],
        body: Body,
        *,
        priority: int = 5,
        receiver: int = 0,
        context: int = 0,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Future[PutReceipt]:
        """Put a message without waiting. The future returns the receipt when the message is stored. Blocks
        only while 10,000 calls are open."""
        return self._background.start(
            self._async.put,
            queue,
            body,
            priority=priority,
            receiver=receiver,
            context=context,
            headers=headers,
            timeout=timeout,
        )

    def put_batch(
        self,
        queue: str,
        bodies: Sequence[Body],
        *,
        priority: int = 5,
        timeout: float | None = None,
    ) -> list[PutReceipt]:
        """Put messages into a queue in one transaction: all or none."""
        return self._background.call(self._async.put_batch, queue, bodies, priority=priority, timeout=timeout)

    def take(
        self,
        queue: str,
        *,
        wait: float = 0,
        mode: str = "priority",
        sender: int = 0,
        context: int = 0,
    ) -> Message | None:
        """Take the message with the highest priority or, with mode 'time', the oldest one. Taking removes the
        message permanently. Waits up to `wait` seconds for a message; returns None if there is none."""
        return self._background.call(
            self._async.take, queue, wait=wait, mode=mode, sender=sender, context=context
        )

    def take_batch(
        self,
        queue: str,
        limit: int,
        *,
        wait: float = 0,
        mode: str = "priority",
        sender: int = 0,
        context: int = 0,
    ) -> list[Message]:
        """Take up to `limit` messages, fewer if they are large. Waits up to `wait` seconds for the first."""
        return self._background.call(
            self._async.take_batch,
            queue,
            limit,
            wait=wait,
            mode=mode,
            sender=sender,
            context=context,
        )

    def messages(self, queue: str, *, mode: str = "priority") -> Iterator[Message]:
        """Take messages from a queue as they arrive, without end."""
        while True:
            message = self.take(queue, wait=LONG_WAIT, mode=mode)
            if message is not None:
                yield message

    def lease(self, queue: str, *, wait: float = 0) -> Lease | None:
        """Lease the message with the highest priority. It is redelivered unless it is settled. Waits up to
        `wait` seconds for a message; returns None if there is none."""
        found = self._background.call(self._async.lease, queue, wait=wait)
        return None if found is None else Lease(found, self._background)

    def leases(self, queue: str) -> Iterator[Lease]:
        """Lease messages from a queue as they arrive, without end. Each is redelivered unless it is
        settled."""
        while True:
            lease = self.lease(queue, wait=LONG_WAIT)
            if lease is not None:
                yield lease

    def browse(self, queue: str, *, after: int = 0, limit: int = 100) -> list[Message]:
        """Return messages of a queue, oldest first, without taking them."""
        return self._background.call(self._async.browse, queue, after=after, limit=limit)

    def request(
        self,
        queue: str,
        body: Body,
        *,
        priority: int = 5,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Put a request into a queue and wait for the reply. Raises Timeout if none comes."""
        return self._background.call(
            self._async.request, queue, body, priority=priority, headers=headers, timeout=timeout
        )

    def reply(self, request: Message, body: Body, *, headers: Mapping[str, str] | None = None) -> PutReceipt:
        """Reply to a message that was put with `request`."""
        return self._background.ask(self._async.reply, request, body, headers=headers)

    def create_queue(self, queue: str) -> int:
        """Create a queue and return its id."""
        return self._background.call(self._async.create_queue, queue)

    def delete_queue(self, queue: str) -> None:
        """Delete a queue and its messages."""
        self._background.call(self._async.delete_queue, queue)

    def purge_queue(self, queue: str) -> int:
        """Delete all messages of a queue and return their number."""
        return self._background.call(self._async.purge_queue, queue)

    def queues(self, *names: str) -> list[QueueState]:
        """Return the state of the named queues, or of all queues."""
        return self._background.call(self._async.queues, *names)
