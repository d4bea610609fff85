"""Reliable pub/sub over ZeroMQ: every message exactly once, even if client or broker crashes.

The broker stores the messages. For each topic, a client stores two numbers, the id of its last message and
the count of its own messages, in a file that survives `kill -9`. See docs/doors/zeromq.md.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from nuncius.client.errors import AlreadyExists, InvalidInput, NotFound, Refused
from nuncius.client.zeromq_link import LazyPirate, NoAnswer
from nuncius.client.zeromq_state import (
    ClientState,
    Publication,
    Remembered,
    StateDamaged,
    StateInUse,
    default_directory,
)
from nuncius.doors.zeromq.pubsub_codec import (
    ACCEPTED,
    ERROR,
    INVALID,
    NOT_SUBSCRIBED,
    GetRequest,
    PutRequest,
    Request,
    SubscribeRequest,
    UnsubscribeRequest,
    encode,
)

__all__ = [
    "AlreadySubscribed",
    "CountMismatch",
    "Message",
    "NoAnswer",
    "NotSubscribed",
    "PubSubClient",
    "StateDamaged",
    "StateInUse",
]

DEFAULT_URL = "tcp://127.0.0.1:5555"
LONGEST_WAIT = 10.0  # seconds that one request waits


class NotSubscribed(NotFound):
    """The client is not subscribed to the topic."""


class AlreadySubscribed(AlreadyExists):
    """The client is subscribed to the topic already."""


class CountMismatch(Refused):
    """The broker's count of this client's messages in the topic differs from the client's. The message was
    not stored; the client uses the broker's count from now on."""


class Message(msgspec.Struct, frozen=True):
    """A message of a topic, with its id there."""

    topic: str
    id: int
    body: bytes
    latest: int
    """The topic's latest id."""

    @property
    def text(self) -> str:
        """The body, decoded as UTF-8; invalid bytes are replaced."""
        return self.body.decode(errors="replace")


class PubSubClient:
    """A publisher and subscriber identified by its id. Do not use it from several threads at once.

    `directory` holds its state file. A request that is not answered within `timeout` seconds is sent again,
    up to `tries` times in all; then NoAnswer is raised. Each method says what that means for the next call.
    """

    def __init__(
        self,
        client_id: str,
        url: str = DEFAULT_URL,
        *,
        directory: Path | str | None = None,
        timeout: float = 2.5,
        tries: int = 10,
    ) -> None:
        if timeout <= 0 or tries < 1:
            raise InvalidInput("at least one try, with some time for an answer")
        self._id = client_id
        self._state = ClientState(client_id, default_directory() if directory is None else Path(directory))
        self._link = LazyPirate(url, timeout, tries)

    @property
    def _remembered(self) -> Remembered:
        return self._state.remembered

    # Publishing

    def put(self, topic: str, body: str | bytes) -> int | None:
        """Publish a message. Returns the number of the topic's subscribers, or None if the message was stored
        but the answer was lost.

        The message is saved in the state file before it is sent. If this raises NoAnswer, or the process is
        killed, the message is therefore not lost: it is sent again, under the same count, before the next
        message to this topic, or by `published`. Do not put it a second time. A message that the broker
        refuses (InvalidInput, CountMismatch) is dropped, together with all pending messages of the topic.
        """
        _check_name(topic)
        publication = self._remembered.publications.setdefault(topic, Publication())
        earlier = len(publication.pending)
        publication.pending.append(body.encode() if isinstance(body, str) else body)
        self._state.save()
        try:
            return self._complete(topic, publication, earlier)
        except NoAnswer as error:
            raise NoAnswer(
                f"{error}; the message is kept and goes before the next one to {topic!r}: do not put it again"
            ) from None

    def published(self, topic: str) -> int:
        """Send pending messages, then return how many messages this client has put into a topic. A program
        that numbers its messages continues from there."""
        publication = self._remembered.publications.get(topic, Publication())
        self._complete(topic, publication, len(publication.pending))
        return publication.count

    def _complete(self, topic: str, publication: Publication, earlier: int) -> int | None:
        """Send all pending messages; `earlier` of them were saved before this call. Returns what `put`
        does."""
        readers = None
        while publication.pending:
            readers = self._put_first(topic, publication, again=earlier > 0)
            earlier -= 1
        return readers

    def _put_first(self, topic: str, publication: Publication, *, again: bool) -> int | None:
        """Send the first pending message. The broker can already have this count for it only if the message
        may have been sent before, in this call or an earlier one (`again`); otherwise the count belongs to
        another program's message."""
        count = publication.count + 1
        try:
            kind, fields, sent = self._ask(PutRequest(self._id, topic, count, publication.pending[0]))
        except InvalidInput:
            self._settle(publication, publication.count, [])
            raise
        number = int(fields[0])
        if kind == ACCEPTED or (number == count and (again or sent > 1)):
            self._settle(publication, count, publication.pending[1:])
            return number if kind == ACCEPTED else None
        refused = len(publication.pending)
        self._settle(publication, number, [])
        raise CountMismatch(
            f"the broker has {number} messages of {self._id!r} in {topic!r}, not {count - 1};"
            f" {refused} more {'was' if refused == 1 else 'were'} not stored"
        )

    def _settle(self, publication: Publication, count: int, pending: list[bytes]) -> None:
        publication.count, publication.pending = count, pending
        self._state.save()

    # Subscribing

    @property
    def subscriptions(self) -> dict[str, int]:
        """The topics that this client is subscribed to, with its last id in each."""
        return dict(self._remembered.subscriptions)

    def subscribe(self, topic: str) -> int:
        """Subscribe to a topic, starting after its latest message, and return the id of that message. If the
        broker has a subscription that this client does not know (it was killed before it could save it, or
        lost its state), the client takes it over and continues after the last confirmed message."""
        _check_name(topic)
        known = self._remembered.subscriptions.get(topic)
        created, last = self._resume(topic)
        if created or known is None or last > known:
            self._remembered.subscriptions[topic] = last
            self._state.save()
        if known is not None and not created:
            raise AlreadySubscribed(f"{self._id!r} is subscribed to {topic!r} already")
        return last

    def unsubscribe(self, topic: str) -> None:
        """Delete a subscription; its unread messages are dropped."""
        _check_name(topic)
        kind, *_ = self._ask(UnsubscribeRequest(self._id, topic))
        known = self._forget(topic)
        if kind == ERROR and not known:  # otherwise an earlier try has deleted it
            raise NotSubscribed(f"{self._id!r} is not subscribed to {topic!r}")

    def _resume(self, topic: str) -> tuple[bool, int]:
        """Subscribe or resume. Return True if the subscription is new, and the last confirmed id."""
        kind, fields, _ = self._ask(SubscribeRequest(self._id, topic, resume=True))
        return kind == ACCEPTED, int(fields[-1])

    def _forget(self, topic: str) -> bool:
        if self._remembered.subscriptions.pop(topic, None) is None:
            return False
        self._state.save()
        return True

    # Getting

    def get(self, topic: str, wait: float = 0.0) -> Message | None:
        """Return the next message of a topic, or None if there is none within `wait` seconds.

        The receipt is saved on disk before the message is returned: no message is returned twice, even after
        a crash. A process that is killed between the save and its own use of the message does not see it
        again; where that matters, use `receive`.
        """
        with self.receive(topic, wait) as message:
            return message

    @contextmanager
    def receive(self, topic: str, wait: float = 0.0) -> Iterator[Message | None]:
        """Yield the next message for a `with` block; it counts as received when the block ends. If the block
        raises, or the process is killed in it, the next call returns the same message under the same id. A
        program that stores the id together with the effect of a message, and skips ids it has stored, applies
        each message exactly once."""
        message = self._next(topic, wait)
        yield message
        if message is not None:
            self._remembered.subscriptions[topic] = message.id
            self._state.save()

    def _next(self, topic: str, wait: float) -> Message | None:
        if not 0 <= wait < float("inf"):
            raise InvalidInput("wait for some seconds, or not at all")
        while True:
            last = self._remembered.subscriptions.get(topic)
            if last is None:
                raise NotSubscribed(f"{self._id!r} is not subscribed to {topic!r}")
            part = min(wait, LONGEST_WAIT)  # limited, to notice when the broker is gone
            wait -= part
            kind, fields, _ = self._ask(GetRequest(self._id, topic, last + 1, part), part)
            if kind == ACCEPTED:
                return Message(topic, last + 1, fields[1], int(fields[0]))
            if fields[0] == NOT_SUBSCRIBED:
                self._forget(topic)
                raise NotSubscribed(f"{self._id!r} is not subscribed to {topic!r} any more")
            latest = int(fields[0])
            if latest > last:
                # The message was stored and is gone: a client of the same id has read it, perhaps this one
                # before its state was restored from a copy.
                self._remembered.subscriptions[topic] = max(last + 1, self._resume(topic)[1])
                self._state.save()
            elif latest < last:
                # The broker was reset, perhaps to a backup. This client has read all that it has; what comes
                # now is new.
                self._remembered.subscriptions[topic] = latest
                self._state.save()
            elif not wait:
                return None

    # The connection

    def _ask(self, request: Request, patience: float = 0.0) -> tuple[bytes, list[bytes], int]:
        """Return the kind of the answer, its fields, and how often the request was sent."""
        (kind, *fields), sent = self._link.ask(encode(request), patience)
        if kind == INVALID:
            raise InvalidInput("the broker does not accept such a name, number or size")
        return kind, fields, sent

    def close(self) -> None:
        """Close the connection and release the state file."""
        self._link.close()
        self._state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_name(topic: str) -> None:
    try:
        topic.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the name of a topic is valid Unicode") from None
