"""Queue methods of the asyncio client."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence

from nuncius.client import errors
from nuncius.client.calls import Calls
from nuncius.client.checks import MAX_WAIT, check_message, check_wait, headers_text, milliseconds
from nuncius.client.connection.piles import PutPile
from nuncius.client.lease import AsyncLease
from nuncius.client.model import (
    Body,
    Message,
    PutReceipt,
    QueueState,
    from_micros,
)
from nuncius.wire import packets

LONG_WAIT = 60.0  # seconds per request; `messages` and `leases` repeat the request
MODES = {"priority": 1, "time": 2}


class QueueCalls(Calls):
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
    ) -> Awaitable[PutReceipt]:
        """Put a message into a queue. The call is complete when it is stored. With several queues, it is put
        into all or none."""
        data = self._checked(body)
        check_message(priority, receiver, context)
        header = headers_text(headers) if headers else None
        if not queue:
            raise errors.InvalidInput("name at least one queue")
        timeout = timeout or self._timeout
        several = None if isinstance(queue, str) else PutPile(queue, timeout)
        pile = several or self._outbox.puts(str(queue), timeout)
        pile.size += len(data)
        pile.bodies.append(data)
        pile.priorities.append(priority)
        pile.receivers.append(receiver)
        pile.contexts.append(context)
        pile.headers.append(header)
        if several is not None:
            return self._put_into_all(several)
        future: asyncio.Future[PutReceipt] = self._loop.create_future()
        pile.futures.append(future)
        return future

    async def _put_into_all(self, pile: PutPile) -> PutReceipt:
        (receipt,) = await self._outbox.send_now(pile)
        return receipt  # type: ignore[no-any-return]

    async def put_batch(
        self,
        queue: str,
        bodies: Sequence[Body],
        *,
        priority: int = 5,
        timeout: float | None = None,
    ) -> list[PutReceipt]:
        """Put messages into a queue in one transaction: all or none."""
        pile = PutPile([queue], timeout or self._timeout)
        pile.bodies = self._all_checked(bodies)
        pile.size = sum(map(len, pile.bodies))
        pile.priorities = [priority] * len(bodies)
        return await self._outbox.send_now(pile)

    async def take(
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
        self._check_open()
        check_wait(wait)
        found = await self._takers.take((queue, _mode(mode), sender, context, wait, self._timeout))
        return None if found is None else to_message(queue, found)

    async def take_batch(
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
        answer = await self._call(
            packets.Take, queue, limit, _mode(mode), sender, context, milliseconds(wait), wait=wait
        )
        return [to_message(queue, message) for message in answer.messages]

    async def messages(self, queue: str, *, mode: str = "priority") -> AsyncIterator[Message]:
        """Take messages from a queue as they arrive, without end."""
        while True:
            message = await self.take(queue, wait=LONG_WAIT, mode=mode)
            if message is not None:
                yield message

    async def lease(self, queue: str, *, wait: float = 0) -> AsyncLease | None:
        """Lease the message with the highest priority. It is redelivered unless it is settled. Waits up to
        `wait` seconds for a message; returns None if there is none."""
        answer = await self._call(packets.Lease, queue, 1, milliseconds(wait), wait=wait)
        if not answer.messages:
            return None
        (found,) = answer.messages
        # The link is that of the answer, or None if it has broken since.
        link, message = self._requester.link, to_message(queue, found.message)
        return AsyncLease(self._requester, link, self._timeout, found, message)

    async def leases(self, queue: str) -> AsyncIterator[AsyncLease]:
        """Lease messages from a queue as they arrive, without end. Each is redelivered unless it is
        settled."""
        while True:
            lease = await self.lease(queue, wait=LONG_WAIT)
            if lease is not None:
                yield lease

    async def browse(self, queue: str, *, after: int = 0, limit: int = 100) -> list[Message]:
        """Return messages of a queue, oldest first, without taking them."""
        answer = await self._call(packets.Browse, queue, after, limit)
        return [to_message(queue, message) for message in answer.messages]

    async def request(
        self,
        queue: str,
        body: Body,
        *,
        priority: int = 5,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Put a request into a queue and wait for the reply. Raises Timeout if none comes."""
        timeout = timeout or min(self._timeout, MAX_WAIT)
        patience = milliseconds(timeout)
        await self._identify()
        answer = await self._call(
            packets.Ask,
            queue,
            self._checked(body),
            priority,
            headers_text(headers),
            patience,
            wait=timeout,
            repeatable=False,
        )
        if not answer.messages:
            raise errors.Timeout(f"no answer within {timeout:g} seconds")
        return to_message(queue, answer.messages[0])

    async def _identify(self) -> None:
        """Register a name for a client without one, for as long as it is open: replies need a receiver."""
        async with self._identifying:
            if not self.client_id:
                self._name = self._name or f"once-{uuid.uuid4()}"
                self._temporary = True
                answer = await self._call(packets.Identify, self._name)
                self.client_id = answer.value

    def reply(
        self, request: Message, body: Body, *, headers: Mapping[str, str] | None = None
    ) -> Awaitable[PutReceipt]:
        """Reply to a message that was put with `request`."""
        return self.put(
            request.queue,
            body,
            priority=request.priority,
            receiver=request.sender_id,
            context=request.context,
            headers=headers,
        )

    async def create_queue(self, queue: str) -> int:
        """Create a queue and return its id."""
        return await self._number(packets.CreateQueue, queue)

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue and its messages."""
        await self._call(packets.DeleteQueue, queue, repeatable=False)

    async def purge_queue(self, queue: str) -> int:
        """Delete all messages of a queue and return their number."""
        return await self._number(packets.PurgeQueue, queue)

    async def queues(self, *names: str) -> list[QueueState]:
        """Return the state of the named queues, or of all queues."""
        answer = await self._call(packets.ListQueues, list(names) or None)
        return [
            QueueState(q.queue_id, q.name, q.depth, None if q.oldest is None else from_micros(q.oldest))
            for q in answer.queues
        ]


def _mode(name: str) -> int:
    try:
        return MODES[name]
    except KeyError:
        raise errors.InvalidInput(f"mode is 'priority' or 'time', not {name!r}") from None


def to_message(queue: str, message: packets.Message) -> Message:
    return Message(
        message.body,
        message.time,
        message.headers,
        queue,
        message.message_id,
        message.sender_id,
        message.receiver_id,
        message.context,
        message.priority,
    )
