"""Acknowledging: what subscribers say of entries, and what is noted before they get them."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from nuncius.store.combiner.combiner import Call
from nuncius.store.driver import Connection

DELIVER = "select nuncius.deliver_many($1, $2, $3)"
ACKNOWLEDGE = "select nuncius.acknowledge_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"


class EntrySpot(msgspec.Struct, frozen=True, gc=False):
    """An offset in a partition, as a subscription sees it."""

    subscription_id: int
    partition_id: int
    offset: int


class Ledger(Protocol):
    """Track the acknowledged entries. A position passes an entry only when its acknowledgement
    is stored, before or in the same transaction; so the position is asked for when that is known."""

    def reached(self, entries: Sequence[Any]) -> Sequence[EntrySpot]:
        """Return the positions after these entries are acknowledged, too."""

    def stored(self, entries: Sequence[Any], positions: Sequence[EntrySpot]) -> None:
        """Note that these entries are acknowledged, and these positions stored."""


class Acknowledgement(msgspec.Struct, frozen=True, gc=False):
    """A subscriber's acknowledgement of `entries` (in the ledger's terms): those that failed, and why, and
    those that had failed before and were taken now. Without a ledger, it names the confirmed positions."""

    ledger: Ledger | None = None
    entries: Any = None
    failed: Sequence[EntrySpot] = ()
    taken: Sequence[EntrySpot] = ()
    reason: str = ""
    confirmed: Sequence[EntrySpot] = ()


class DeliverCall(Call):
    """Entries below these offsets are about to be handed over."""

    __slots__ = ("spot",)

    def __init__(self, done: Callable[[Any], None], caller: Hashable, spot: EntrySpot) -> None:
        super().__init__(done, caller, None, 1, 100, True)
        self.spot = spot


class AcknowledgeCall(Call):
    __slots__ = ("said",)

    def __init__(
        self, done: Callable[[Any], None], caller: Hashable, subscription_id: int, said: Acknowledgement
    ) -> None:
        rows = 1 + len(said.confirmed) + len(said.failed) + len(said.taken)
        super().__init__(done, caller, subscription_id, rows, 100 * rows, not said.failed)
        self.said = said


async def deliver(connection: Connection, calls: Sequence[DeliverCall], _: bool) -> list[Any]:
    """Carries out a batch. Results: None."""
    await connection.fetchval(DELIVER, *_columns([call.spot for call in calls]))
    return [None] * len(calls)


@dataclass(frozen=True, slots=True)
class Noted:
    """The outcome of acknowledgements. Attempts are those of failed entries; a negative one is the last."""

    attempts: list[list[int]]
    reached: list[tuple[Ledger, Sequence[Any], Sequence[EntrySpot]]]

    def settle(self) -> None:
        """The transaction is committed: tells the ledgers."""
        for ledger, entries, positions in self.reached:
            ledger.stored(entries, positions)


class Acknowledging:
    def __init__(self, retry_delay: float, max_attempts: int) -> None:
        self._retry = (retry_delay, max_attempts)

    async def acknowledge(
        self, connection: Connection, calls: Sequence[AcknowledgeCall], _: bool
    ) -> list[Any]:
        """Carries out a batch. Results: the attempts of each entry that failed, negative if given up."""
        noted = await self.note(connection, [call.said for call in calls])
        noted.settle()
        return noted.attempts

    async def note(self, connection: Connection, said: Sequence[Acknowledgement]) -> Noted:
        together: dict[Ledger, list[Any]] = {}
        for each in said:
            if each.ledger is not None:
                together.setdefault(each.ledger, []).append(each.entries)
        reached: list[tuple[Ledger, Sequence[Any], Sequence[EntrySpot]]] = [
            (ledger, entries, ledger.reached(entries)) for ledger, entries in together.items()
        ]
        confirmed = [spot for _, _, positions in reached for spot in positions]
        confirmed += [spot for each in said for spot in each.confirmed]
        counts = await connection.fetchval(
            ACKNOWLEDGE,
            *_columns(confirmed),
            *_columns([spot for each in said for spot in each.failed]),
            [each.reason for each in said for _ in each.failed],
            *_columns([spot for each in said for spot in each.taken]),
            *self._retry,
        )
        attempts, end = [], 0
        for each in said:
            start, end = end, end + len(each.failed)
            attempts.append(counts[start:end])
        return Noted(attempts, reached)


def _columns(spots: Sequence[EntrySpot]) -> tuple[list[int], list[int], list[int]]:
    return (
        [spot.subscription_id for spot in spots],
        [spot.partition_id for spot in spots],
        [spot.offset for spot in spots],
    )
