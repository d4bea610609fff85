"""Checks of puts, and puts as part of a transaction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nuncius.broker.errors import NoSuchQueue
from nuncius.broker.limits import (
    Limits,
    check_bodies,
    check_count,
    check_headers,
    check_int32,
    check_priority,
)
from nuncius.broker.topics.topic import Publisher
from nuncius.broker.topics.topics import PER_ENTRY
from nuncius.store.calls.putting import Letter, MissingQueues, PutCall, put
from nuncius.store.driver import Connection


@dataclass(frozen=True, slots=True)
class Putting:
    """Puts that belong to a transaction."""

    calls: Sequence[PutCall]
    arrived: Callable[[int, Sequence[Letter]], None]

    async def carry_out(self, connection: Connection) -> None:
        if self.calls:
            for result in await put(connection, self.calls, True):
                if isinstance(result, MissingQueues):
                    raise missing(result)

    def announce(self) -> None:
        for call in self.calls:
            self.arrived(call.queue_id, call.letters)


def check_letters(limits: Limits, letters: Sequence[Letter], publisher: Publisher | None, count: int) -> int:
    """Check messages for a queue, and their publisher's count. Return about how much memory they take."""
    size = check_bodies(limits, [letter.body for letter in letters])
    for letter in letters:
        check_priority(letter.priority)
        check_int32("a receiver", letter.receiver)
        check_int32("a context", letter.context)
        if letter.headers is not None:
            check_headers(limits, [letter.headers], 1)
    if publisher is not None:
        check_count(count)
    return size + PER_ENTRY * len(letters)


def ignore(result: Any) -> None:
    """Do nothing: the `done` of calls whose result is taken from the batch."""


def missing(result: MissingQueues) -> NoSuchQueue:
    ids = ", ".join(map(str, result.queue_ids))
    return NoSuchQueue(f"there is no queue {ids}; nothing was put")
