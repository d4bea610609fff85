"""Publishing in turn and getting by id: many calls become one `publish_in_turn` or one `get_many`."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec

from nuncius.store.combiner.combiner import Call, Detour
from nuncius.store.driver import Connection
from nuncius.store.errors import CallFailed

PUBLISH = "select codes, registered, subscribers, topic_ids from nuncius.publish_in_turn($1, $2, $3, $4, $5)"
GET = "select codes, latest, topic_ids, bodies from nuncius.get_many($1, $2, $3, $4)"

STORED, OTHER_COUNT, BUSY, ELSEWHERE = 0, 1, -3, -5
HERE, NONE_THERE, TOO_MUCH, NOT_SUBSCRIBED = 0, 1, 2, -2
MAX_BYTES = 4 << 20  # of one answer of the store
PER_CALL = 200  # bytes of memory a call costs besides its body


class Turn(msgspec.Struct, frozen=True, gc=False):
    """The result for a message with a count: stored, for so many subscribers; or not, because the publisher
    has another count in this topic."""

    stored: bool
    registered: int
    subscribers: int


class FoundEntry(msgspec.Struct, frozen=True, gc=False):
    """The entry of an id; `body` is None if there is none. `latest` is the subscriber's latest id."""

    latest: int
    body: bytes | None
    topic_id: int


class TurnCall(Call):
    __slots__ = ("body", "count", "publisher", "topic", "topic_id", "tries")
    topic_id: int

    def __init__(
        self,
        done: Callable[[Any], None],
        caller: Hashable,
        topic: str,
        publisher: str,
        count: int,
        body: bytes,
    ) -> None:
        # Made for every message: the parent's fields are set here rather than by a second call.
        self.done = done
        self.caller = caller
        self.key = topic
        self.rows = 1
        self.size = len(body) + PER_CALL
        self.repeatable = True
        self.topic = topic
        self.publisher = publisher
        self.count = count
        self.body = body
        self.tries = 0


class GetCall(Call):
    __slots__ = ("id", "subscriber", "topic")

    def __init__(
        self, done: Callable[[Any], None], caller: Hashable, topic: str, subscriber: str, entry_id: int
    ) -> None:
        self.done = done
        self.caller = caller
        self.key = (topic, subscriber)  # a call that waits for a lock does not delay other subscribers
        self.rows = 1
        self.size = PER_CALL
        self.repeatable = True
        self.topic = topic
        self.subscriber = subscriber
        self.id = entry_id


async def publish_in_turn(connection: Connection, calls: Sequence[TurnCall], wait: bool) -> list[Any]:
    """Carry out a batch. Results: Turn, CallFailed, or a Detour for calls to try again."""
    for call in calls:
        call.tries += 1
    row = await connection.fetchrow(
        PUBLISH,
        [call.topic for call in calls],
        [call.publisher for call in calls],
        [call.count for call in calls],
        [call.body for call in calls],
        wait,
    )
    assert row is not None
    results: list[Turn | Detour | CallFailed] = []
    for call, code, registered, subscribers, topic_id in zip(calls, *row.values(), strict=True):
        call.topic_id = topic_id
        if code == STORED:
            results.append(Turn(True, call.count, subscribers))
        elif code == OTHER_COUNT:
            # If the call was repeated after a lost answer, the first attempt may have stored the count.
            stored = call.tries > 1 and registered == call.count
            results.append(Turn(stored, registered, subscribers))
        elif code == ELSEWHERE:
            results.append(CallFailed(f"topic {call.topic!r} is in the store of a broker, out of reach here"))
        else:
            results.append(Detour.BUSY if code == BUSY else Detour.STALE)
    return results


async def get(connection: Connection, calls: Sequence[GetCall], _: bool) -> list[Any]:
    """Carry out a batch. Results: Found, TOO_MUCH or NOT_SUBSCRIBED."""
    row = await connection.fetchrow(
        GET,
        [call.topic for call in calls],
        [call.subscriber for call in calls],
        [call.id for call in calls],
        MAX_BYTES,
    )
    assert row is not None
    return [
        FoundEntry(latest, body, topic_id) if code in (HERE, NONE_THERE) else code
        for code, latest, topic_id, body in zip(*row.values(), strict=True)
    ]
