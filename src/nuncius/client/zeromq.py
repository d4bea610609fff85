"""Reliable pub/sub over ZeroMQ: every message exactly once, whoever crashes when.

The broker keeps the messages; a client remembers two numbers a topic, its last message there and how many it
has put, in a file of its own that survives `kill -9`. See docs/doors/zeromq.md.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from nuncius.client.errors import AlreadyExists, InvalidInput, NotFound, Refused
from nuncius.client.zeromq_link import Link, NoAnswer
from nuncius.client.zeromq_state import (
    Publication,
    Remembered,
    State,
    StateDamaged,
    StateInUse,
    default_directory,
)
from nuncius.doors.zeromq.pubsub_codec import (
    ACCEPTED,
    ERROR,
    INVALID,
    NOT_SUBSCRIBED,
    Get,
    Put,
    Request,
    Subscribe,
    Unsubscribe,
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
    """The broker has another count of this client's messages in the topic than the client. The message was
    not stored; the client goes by the broker's count from now on."""


class Message(msgspec.Struct, frozen=True):
    topic: str
    id: int
    body: bytes
    latest: int
    """The topic's latest id."""

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


class PubSubClient:
    """A publisher and subscriber known by its id. Not for several threads at once.

    `directory` is where its state file lies. A request that is not answered within `timeout` seconds is sent
    again, `tries` times in all; then NoAnswer is raised. What that means for the next call is said at each.
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
        self._state = State(client_id, default_directory() if directory is None else Path(directory))
        self._link = Link(url, timeout, tries)

    @property
    def _remembered(self) -> Remembered:
        return self._state.remembered

    # Publishing

    def put(self, topic: str, body: str | bytes) -> int | None:
        """Publishes a message; answers with the number of the topic's subscribers, or None when the message
        was stored and only the answer was lost.

        The message is noted in the state file before it is sent. When this raises NoAnswer, or the process is
        killed, it is therefore not given up: it is sent again, under the same count, before the next message
        to this topic, or by `published`. Do not put it a second time. What the broker refuses (InvalidInput,
        CountMismatch) is given up, and so is what was still to be sent with it.
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
        """How many messages this client has put into a topic, after completing what was interrupted. A
        program that numbers its messages goes on from here."""
        publication = self._remembered.publications.get(topic, Publication())
        self._complete(topic, publication, len(publication.pending))
        return publication.count

    def _complete(self, topic: str, publication: Publication, earlier: int) -> int | None:
        """Puts what is pending; so many of them were noted before this call. Answers as `put` does."""
        readers = None
        while publication.pending:
            readers = self._put_first(topic, publication, again=earlier > 0)
            earlier -= 1
        return readers

    def _put_first(self, topic: str, publication: Publication, *, again: bool) -> int | None:
        """Only if it may have been sent before, in this call or `again`, can its own count be there already;
        else that is somebody else's."""
        count = publication.count + 1
        try:
            kind, fields, sent = self._ask(Put(self._id, topic, count, publication.pending[0]))
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
        """The topics that this client is subscribed to, and its last id in each."""
        return dict(self._remembered.subscriptions)

    def subscribe(self, topic: str) -> int:
        """Subscribes to a topic, from its latest message on; answers with that one's id. If the broker
        has a subscription that this client does not know of (it was killed before it could note it, or its
        state is lost), that one is taken over, and goes on after what was confirmed."""
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
        """Ends a subscription; what was pending is dropped."""
        _check_name(topic)
        kind, *_ = self._ask(Unsubscribe(self._id, topic))
        known = self._forget(topic)
        if kind == ERROR and not known:  # else an earlier try has ended it
            raise NotSubscribed(f"{self._id!r} is not subscribed to {topic!r}")

    def _resume(self, topic: str) -> tuple[bool, int]:
        """Whether this made a subscription, and the last id that is confirmed."""
        kind, fields, _ = self._ask(Subscribe(self._id, topic, resume=True))
        return kind == ACCEPTED, int(fields[-1])

    def _forget(self, topic: str) -> bool:
        if self._remembered.subscriptions.pop(topic, None) is None:
            return False
        self._state.save()
        return True

    # Getting

    def get(self, topic: str, wait: float = 0.0) -> Message | None:
        """The next message of a topic; None when there is none, or none came in so many seconds.

        That it was returned is on the disk before it is returned: no message is returned twice, whatever is
        killed. A process that is killed between that moment and its own use of the message does not
        see it again; where that matters, use `receive`.
        """
        with self.receive(topic, wait) as message:
            return message

    @contextmanager
    def receive(self, topic: str, wait: float = 0.0) -> Iterator[Message | None]:
        """The same for the length of a `with` block, at the end of which the message counts as received. When
        the block raises, or the process is killed in it, the next call returns the same message under the
        same id; so a program that writes down the id together with the effect of a message, and leaves
        out what it has written down already, has every effect exactly once."""
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
            part = min(wait, LONGEST_WAIT)  # so that we notice when the broker is gone
            wait -= part
            kind, fields, _ = self._ask(Get(self._id, topic, last + 1, part), part)
            if kind == ACCEPTED:
                return Message(topic, last + 1, fields[1], int(fields[0]))
            if fields[0] == NOT_SUBSCRIBED:
                self._forget(topic)
                raise NotSubscribed(f"{self._id!r} is not subscribed to {topic!r} any more")
            latest = int(fields[0])
            if latest > last:
                # It has been there and is gone: somebody with our name had it, perhaps we before our state
                # was restored from a copy.
                self._remembered.subscriptions[topic] = max(last + 1, self._resume(topic)[1])
                self._state.save()
            elif latest < last:
                # The broker was set back, to a backup perhaps. What it has we had; what comes now is new.
                self._remembered.subscriptions[topic] = latest
                self._state.save()
            elif not wait:
                return None

    # The connection

    def _ask(self, request: Request, patience: float = 0.0) -> tuple[bytes, list[bytes], int]:
        """The kind of the answer, its fields, and how often the request was sent."""
        (kind, *fields), sent = self._link.ask(encode(request), patience)
        if kind == INVALID:
            raise InvalidInput("the broker does not accept such a name, number or size")
        return kind, fields, sent

    def close(self) -> None:
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
