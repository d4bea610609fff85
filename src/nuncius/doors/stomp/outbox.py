"""Store the SENDs of a connection in their order.

Most need only a queue or topic that the node knows, and are stored at once. The first SEND to a queue, and
one with a sender's own id, needs a lookup; later ones wait for it, so that the order is kept. Messages with
an id and those without are stored in different groups, so when a connection changes from one kind to the
other, the new ones wait until the others are stored.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from nuncius.broker import Broker
from nuncius.broker.errors import NoSuchQueue
from nuncius.broker.model import Letter, Publisher, Queue
from nuncius.doors.stomp.background import Background
from nuncius.doors.stomp.destinations import Destination
from nuncius.doors.stomp.frames.headers import SentMessage

LOOK_UPS = 32  # at a time, per connection


class _Posting:
    """A SEND on its way."""

    __slots__ = ("done", "error", "is_prepared", "message", "publisher", "queue", "to", "was_lost")

    def __init__(self, to: Destination, message: SentMessage, done: Callable[[Any], None]) -> None:
        self.to = to
        self.message = message
        self.done = done
        self.queue: Queue | None = None
        self.publisher: Publisher | None = None
        self.error: Exception | None = None
        self.is_prepared = False
        self.was_lost = False  # its queue was deleted before it was stored


class StompOutbox:
    def __init__(self, broker: Broker, login: str, caller: Hashable, background: Background) -> None:
        self._broker = broker
        self._login = login
        self._caller = caller
        self._background = background
        self._line: deque[_Posting] = deque()
        self._under_way = 0
        self._with_id = False  # whether the messages under way have an id
        self._unprepared: deque[_Posting] = deque()
        self._is_preparing = False

    def send(self, to: Destination, message: SentMessage, done: Callable[[Any], None]) -> None:
        """Store a message. `done` gets an exception on failure, any other value on success."""
        posting = _Posting(to, message, done)
        if not self._line and message.own_id is None and not self._with_id:
            posting.queue = self._broker.queues.names.known(to.name) if to.is_queue else None
            if posting.queue is not None or not to.is_queue:
                self._post(posting)
                return
        self._stand_in_line(posting)

    async def resolve(self, to: Destination, message: SentMessage) -> tuple[Queue | None, Publisher | None]:
        """Look up the queue and the publisher of a message."""
        queue = await self._broker.queues.ensure(to.name) if to.is_queue else None
        publisher = None
        if message.own_id is not None:
            name = publisher_name(self._login, message.own_id)
            publisher = await self._broker.publishers.find(name, lasting=False)
        return queue, publisher

    def _stand_in_line(self, posting: _Posting) -> None:
        self._line.append(posting)
        self._unprepared.append(posting)
        if not self._is_preparing:
            self._is_preparing = True
            self._background.start(self._prepare_all())

    async def _prepare_all(self) -> None:
        while self._unprepared:
            group = [self._unprepared.popleft() for _ in range(min(len(self._unprepared), LOOK_UPS))]
            await asyncio.gather(*map(self._prepare, group))
            self._advance()
        self._is_preparing = False

    def _advance(self) -> None:
        while self._line and self._line[0].is_prepared:
            with_id = self._line[0].message.own_id is not None
            if self._under_way and with_id != self._with_id:
                return
            self._with_id = with_id
            self._post(self._line.popleft())

    async def _prepare(self, posting: _Posting) -> None:
        try:
            posting.queue, posting.publisher = await self.resolve(posting.to, posting.message)
        except Exception as error:
            posting.error = error
        posting.is_prepared = True

    def _post(self, posting: _Posting) -> None:
        self._under_way += 1
        if posting.error is not None:
            self._stored(posting, posting.error)
            return
        message, publisher = posting.message, posting.publisher
        count = 0 if publisher is None else 1
        try:
            if posting.queue is not None:
                self._broker.queues.put_soon(
                    posting.queue.queue_id,
                    [letter(message)],
                    partial(self._stored, posting),
                    publisher=publisher,
                    count=count,
                    caller=self._caller,
                )
            else:
                self._broker.topics.publish_soon(
                    posting.to.name,
                    [message.body],
                    partial(self._stored, posting),
                    keys=None if message.key is None else [message.key],
                    headers=None if message.headers is None else [message.headers],
                    publisher=publisher,
                    count=count,
                    caller=self._caller,
                )
        except Exception as error:
            self._stored(posting, error)

    def _stored(self, posting: _Posting, result: Any) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._with_id = False
        if isinstance(result, NoSuchQueue) and not posting.was_lost:
            # The queue was deleted a moment ago; a SEND creates it again.
            self._broker.queues.names.forget(posting.to.name)
            posting.was_lost, posting.is_prepared = True, False
            self._stand_in_line(posting)
        else:
            posting.done(result)
        if not self._under_way:
            self._advance()


def letter(message: SentMessage) -> Letter:
    return Letter(message.body, message.priority, headers=message.headers)


def publisher_name(login: str, own_id: str) -> str:
    """Return the publisher for a message with a sender's own id: one publisher per message."""
    return "stomp/" + hashlib.sha256(f"{len(login)} {login} {own_id}".encode()).hexdigest()
