"""Messages that share a packet, column by column, with the futures of their callers."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from nuncius.client.model import PutReceipt, Receipt
from nuncius.wire import packets


class Pile(ABC):
    """Base of the piles for topics and queues."""

    columns: ClassVar[tuple[str, ...]] = ("bodies", "headers", "futures")
    """The lists with an item for each message."""
    __slots__ = ("bodies", "futures", "headers", "place", "size", "timeout", "whole")

    def __init__(self, place: tuple[str, str], timeout: float) -> None:
        self.place = place  # ('topic' or 'queue', its name): where the messages are counted
        self.timeout = timeout
        self.size = 0  # of all bodies
        self.bodies: list[bytes] = []
        self.headers: list[str | None] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.whole: asyncio.Future[list[Any]] | None = None  # set if the messages are one operation

    @property
    def counts(self) -> int:
        """The number of counts that the messages use."""
        return len(self.bodies)

    @abstractmethod
    def packet(self, request: int, count: int) -> packets.Packet:
        """Return the messages as a packet; `count` is that of the first."""

    @abstractmethod
    def empty(self) -> Self:
        """Return a pile for the same target, without messages."""

    def split(self) -> Self:
        """Remove the first half and return it."""
        first = self.empty()
        for name in self.columns:
            column = getattr(self, name)
            half = len(column) // 2
            setattr(first, name, column[:half])
            del column[:half]
        return first

    @abstractmethod
    def receipts(self, answer: Any) -> list[Any]:
        """Return the receipt of each message from the answer packet."""

    def settle(self, answer: Any) -> None:
        """Resolve all futures with the answer packet or an exception."""
        if isinstance(answer, Exception):
            for future in [self.whole] if self.whole is not None else self.futures:
                if not future.done():
                    future.set_exception(answer)
        elif self.whole is not None:
            if not self.whole.done():
                self.whole.set_result(self.receipts(answer))
        else:
            for future, receipt in zip(self.futures, self.receipts(answer), strict=True):
                if not future.done():
                    future.set_result(receipt)


def _unless_empty(column: list[str | None]) -> list[str | None] | None:
    """Return None for a column that has only None: it is not sent. An empty text counts as a value."""
    return None if column.count(None) == len(column) else column


class PublishPile(Pile):
    columns = (*Pile.columns, "keys")
    __slots__ = ("keys", "partition")

    def __init__(self, topic: str, partition: int, timeout: float) -> None:
        super().__init__(("topic", topic), timeout)
        self.partition = partition
        self.keys: list[str | None] = []

    def packet(self, request: int, count: int) -> packets.Packet:
        return packets.Publish(
            request,
            self.place[1],
            self.bodies,
            _unless_empty(self.keys),
            _unless_empty(self.headers),
            self.partition,
            count,
        )

    def empty(self) -> Self:
        return type(self)(self.place[1], self.partition, self.timeout)

    def receipts(self, answer: packets.Published) -> list[Any]:
        if answer.scattered is not None:
            return [Receipt(p, offset if offset >= 0 else None) for p, offset in answer.scattered]
        partition, offset = answer.partition, answer.offset
        new = len(self.bodies) - answer.skipped
        receipts = [Receipt(partition, at) for at in range(offset, offset + new)]
        return [Receipt(partition, None)] * answer.skipped + receipts


class PutPile(Pile):
    """Messages for one queue, or one message for several."""

    columns = (*Pile.columns, "priorities", "receivers", "contexts")
    __slots__ = ("contexts", "priorities", "queues", "receivers")

    def __init__(self, queues: Sequence[str], timeout: float) -> None:
        super().__init__(("queue", queues[0]), timeout)
        self.queues = list(queues)
        self.priorities: list[int] = []
        self.receivers: list[int] = []
        self.contexts: list[int] = []

    def packet(self, request: int, count: int) -> packets.Packet:
        return packets.Put(
            request,
            self.queues,
            self.bodies,
            self.priorities,
            self.receivers if any(self.receivers) else None,
            self.contexts if any(self.contexts) else None,
            _unless_empty(self.headers),
            count,
        )

    def empty(self) -> Self:
        return type(self)(self.queues, self.timeout)

    def receipts(self, answer: packets.PutDone) -> list[Any]:
        if len(self.queues) > 1:
            return [PutReceipt(tuple(answer.ids))]
        return [PutReceipt(())] * answer.skipped + [PutReceipt((id_,)) for id_ in answer.ids]
