"""What a client without asyncio can do with queues."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future

from nuncius.client.aio import AsyncClient
from nuncius.client.blocking.background import Background
from nuncius.client.blocking.lease import Lease
from nuncius.client.model import Body, Message, PutReceipt, QueueState

LONG_WAIT = 60.0  # of one request; `messages` and `leases` send one after the other


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
        """Puts a message into a queue; returns when it is stored. Into several queues: all or none."""
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
        """Puts a message without waiting; the future has the receipt when it is stored. Waits only while
        very many are open."""
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
        """Puts messages into a queue in one transaction: all of them or none."""
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
        """Takes a message: the one with the highest priority, or, with mode 'time', the oldest. Waits up to
        `wait` seconds for one; None if there is none."""
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
        """Takes up to `limit` messages, fewer if they are large; waits up to `wait` seconds for the first."""
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
        """Takes messages of a queue as they come, for ever."""
        while True:
            message = self.take(queue, wait=LONG_WAIT, mode=mode)
            if message is not None:
                yield message

    def lease(self, queue: str, *, wait: float = 0) -> Lease | None:
        """Takes a message, the one with the highest priority, that comes again unless it is settled. Waits up
        to `wait` seconds for one; None if there is none."""
        found = self._background.call(self._async.lease, queue, wait=wait)
        return None if found is None else Lease(found, self._background)

    def leases(self, queue: str) -> Iterator[Lease]:
        """Takes messages of a queue as they come, for ever; each comes again unless it is settled."""
        while True:
            lease = self.lease(queue, wait=LONG_WAIT)
            if lease is not None:
                yield lease

    def browse(self, queue: str, *, after: int = 0, limit: int = 100) -> list[Message]:
        """Messages of a queue, oldest first, without taking them."""
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
        """Puts a request into a queue and waits for the answer to it; raises Timeout if none comes."""
        return self._background.call(
            self._async.request, queue, body, priority=priority, headers=headers, timeout=timeout
        )

    def reply(self, request: Message, body: Body, *, headers: Mapping[str, str] | None = None) -> PutReceipt:
        """Answers a message that was put with `request`."""
        return self._background.ask(self._async.reply, request, body, headers=headers)

    def create_queue(self, queue: str) -> int:
        """Makes a queue and answers with its id."""
        return self._background.call(self._async.create_queue, queue)

    def delete_queue(self, queue: str) -> None:
        self._background.call(self._async.delete_queue, queue)

    def purge_queue(self, queue: str) -> int:
        """Takes all messages away; answers how many there were."""
        return self._background.call(self._async.purge_queue, queue)

    def queues(self, *names: str) -> list[QueueState]:
        """The queues of those names, or all."""
        return self._background.call(self._async.queues, *names)
