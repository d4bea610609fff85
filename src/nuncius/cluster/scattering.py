"""Split a call whose entries go to partitions in several stores, and combine the answers."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from nuncius.broker.errors import OutcomeUnknown
from nuncius.broker.model import Placed
from nuncius.cluster.link.codec import Moved, Send
from nuncius.store.calls.publishing import PublishCall
from nuncius.store.errors import StoreUnavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallPiece:
    """Entries of a call for one partition, by number; None means all."""

    partition: int
    numbers: Sequence[int] | None


def parts_of(call: PublishCall) -> list[CallPiece]:
    partitions = call.partitions
    if type(partitions) is int:
        return [CallPiece(partitions, None)]
    several: Sequence[int] = partitions  # type: ignore[assignment]
    if len(set(several)) == 1:
        return [CallPiece(several[0], None)]
    if call.publisher_id is not None:
        # Each store sees some of the publisher's counts, in order: so entries are sent one by one.
        return [CallPiece(partition, [n]) for n, partition in enumerate(several)]
    grouped: dict[int, list[int]] = {}
    for n, partition in enumerate(several):
        grouped.setdefault(partition, []).append(n)
    return [CallPiece(partition, numbers) for partition, numbers in grouped.items()]


class Parts:
    """Collects the answers of all pieces and answers the call."""

    def __init__(self, pieces: Sequence[CallPiece], done: Callable[[Any], None]) -> None:
        self._done = done
        self._left = len(pieces)
        self._errors: list[Exception] = []
        self._places: dict[int, tuple[int, int]] = {}

    def part(self, piece: CallPiece) -> Callable[[Any], None]:
        return partial(self._answered, piece)

    def _answered(self, piece: CallPiece, result: Any) -> None:
        if isinstance(result, Exception):
            self._errors.append(result)
        else:
            assert piece.numbers is not None
            for at, n in enumerate(piece.numbers):
                known = at < result.skipped
                self._places[n] = (piece.partition, -1 if known else result.offset + at - result.skipped)
        self._left -= 1
        if not self._left:
            self._done(self._whole())

    def _whole(self) -> Placed | Exception:
        if not self._errors:
            places = [self._places[n] for n in sorted(self._places)]
            return Placed(0, -1, sum(offset < 0 for _, offset in places), places)
        nothing = all(isinstance(error, Moved | StoreUnavailable) for error in self._errors)
        if nothing and not self._places:
            return self._errors[0]
        return OutcomeUnknown(f"some of the entries may be stored, others are not: {self._errors[0]}")


def send_of(call: PublishCall, store: int, partition: int, numbers: Sequence[int] | None = None) -> Send:
    """Build the request for a broker: all entries of a call, or those with these numbers."""
    return Send(
        0,
        store,
        call.topic_id,
        call.topic_name,
        partition,
        _picked(call.bodies, numbers),
        None if call.keys is None else _picked(call.keys, numbers),
        None if call.headers is None else _picked(call.headers, numbers),
        call.publisher_id or 0,
        call.sticky or "",
        call.count + (numbers[0] if numbers else 0),
    )


def call_of(
    send: Send, done: Callable[[Any], None], caller: Hashable, publisher_id: int | None, size: int
) -> PublishCall:
    """Build the call that stores the entries of a request in this process."""
    call = PublishCall(
        done,
        caller,
        send.topic,
        send.bodies,
        send.keys,
        send.headers,
        send.partition or None,
        send.publisher or None,
        publisher_id,
        send.count,
        size,
    )
    call.topic_id, call.partitions, call.layout = send.topic_id, send.partition, None
    return call


def _picked(items: Sequence[T], numbers: Sequence[int] | None) -> list[T]:
    return list(items) if numbers is None else [items[n] for n in numbers]
