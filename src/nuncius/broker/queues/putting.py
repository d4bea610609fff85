"""Puts into queues as part of a transaction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nuncius.broker.errors import NoSuchQueue
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


def ignore(result: Any) -> None:
    """Do nothing: the `done` of calls whose result is taken from the batch."""


def missing(result: MissingQueues) -> NoSuchQueue:
    ids = ", ".join(map(str, result.queue_ids))
    return NoSuchQueue(f"there is no queue {ids}; nothing was put")
