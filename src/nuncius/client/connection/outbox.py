"""Outgoing messages, counted.

Each message for a topic or queue gets the publisher's next count there, so that the broker recognises a
message that is sent again after a broken connection. Counts are consecutive; therefore messages of one turn
of the loop share a packet, which costs little more than a single message.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from nuncius.client.connection.piles import Pile, PublishPile, PutPile
from nuncius.client.connection.requester import Requester
from nuncius.client.errors import InvalidInput

SPLIT = 32
MAX_ROWS = 2000
MAX_BYTES = 1 << 20
MAX_BATCH_BYTES = 24 << 20  # well below the largest frame a node accepts


class PublisherOutbox:
    def __init__(self, requester: Requester, last_count: Callable[[str, str], Awaitable[int]] | None) -> None:
        self._requester = requester
        self._last_count = last_count  # asks the broker; None: a new publisher, all counts are 0
        self._piles: dict[Any, Pile] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._held: dict[tuple[str, str], list[Pile]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way = 0
        self.max_rows = MAX_ROWS

    def publishes(self, topic: str, partition: int, timeout: float) -> PublishPile:
        """Return the pile that collects messages for this topic during this turn of the loop."""
        target = (topic, partition, timeout)
        pile = self._piles.get(target)
        if pile is None or self._is_full(pile):
            pile = PublishPile(topic, partition, timeout)
            self._open(target, pile)
        return pile  # type: ignore[return-value]

    def puts(self, queue: str, timeout: float) -> PutPile:
        """Return the pile that collects messages for this queue during this turn of the loop."""
        target = (queue, timeout)
        pile = self._piles.get(target)
        if pile is None or self._is_full(pile):
            pile = PutPile([queue], timeout)
            self._open(target, pile)
        return pile  # type: ignore[return-value]

    def _is_full(self, pile: Pile) -> bool:
        """Return True, and send the pile, if the next message needs a new one."""
        if len(pile.bodies) < self.max_rows and pile.size < MAX_BYTES:
            return False
        self._send(pile)
        return True

    def _open(self, target: Any, pile: Pile) -> None:
        if not self._piles:
            asyncio.get_running_loop().call_soon(self._flush)
        self._piles[target] = pile

    async def send_now(self, pile: Pile) -> list[Any]:
        """Send messages as one operation and return their results."""
        if pile.size > MAX_BATCH_BYTES:
            raise InvalidInput(f"a batch has at most {MAX_BATCH_BYTES} bytes, not {pile.size}")
        self._flush()  # messages handed in before are sent before
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        pile.whole = future
        self._send(pile)
        return await future

    def _flush(self) -> None:
        piles, self._piles = self._piles, {}
        for pile in piles.values():
            if not self._under_way and len(pile.bodies) >= SPLIT:
                # Nothing is in flight: send two halves, so that the node prepares and answers one while it
                # stores the other.
                self._send(pile.split())
            self._send(pile)
        if self._requester.link is not None:
            self._requester.link.flush()

    def _send(self, pile: Pile) -> None:
        count = self._counts.get(pile.place)
        if count is None:
            if self._last_count is not None:
                self._hold(pile)
                return
            count = 0
        self._counts[pile.place] = count + pile.counts
        self._under_way += 1
        self._requester.submit(
            pile.packet(self._requester.next_request(), count + 1),
            lambda answer: self._answered(pile, answer),
            pile.timeout,
            repeatable=True,
        )

    def _answered(self, pile: Pile, answer: Any) -> None:
        self._under_way -= 1
        pile.settle(answer)

    def _hold(self, pile: Pile) -> None:
        """Hold a pile until the broker has told the last count of a publisher that existed before."""
        held = self._held.get(pile.place)
        if held is not None:
            held.append(pile)
            return
        self._held[pile.place] = [pile]
        task = asyncio.get_running_loop().create_task(self._learn(pile.place))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _learn(self, place: tuple[str, str]) -> None:
        assert self._last_count is not None
        try:
            self._counts[place] = await self._last_count(*place)
        except Exception as error:
            for pile in self._held.pop(place):
                pile.settle(error)
        else:
            for pile in self._held.pop(place):
                self._send(pile)
