"""Contents of queues, without taking messages.

The depth of a queue must be counted, and counting a million messages takes a while. So the queues on a page
are counted up to a bound, exactly and at once. All depths are counted together now and then, to sort by depth
and for queues beyond the bound. A count that took long is not repeated soon.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from nuncius.broker.errors import NotFound
from nuncius.broker.observe.facts_page import FactsListing, Page, Wish, headers_of
from nuncius.store.queries import query
from nuncius.store.store import Store

SEARCH = query("facts", "search_queues")
MESSAGE = query("facts", "message")

BOUND = 2_000  # of each receiver and priority
PREVIEW = 200  # bytes
FRESH_SECONDS = 2.0
RESPITE = 20  # the pause before the next count, in times of the last count's duration

QUEUES = FactsListing("nuncius.queues", "queue_id", "queue_name", {"name": "queue_name", "id": "queue_id"})
SORTS = {**QUEUES.sorts, "depth": None}
MESSAGE_SORTS = {"priority": False, "age": True}


class NoSuchMessage(NotFound):
    pass


@dataclass(frozen=True, slots=True)
class QueueFacts:
    queue_id: int
    name: str
    depths: tuple[int, ...]
    """Of priorities 1 to 10."""
    depth: int
    is_exact: bool
    """False: `depth` is a lower bound."""
    oldest: datetime | None
    receivers: int
    """Clients that messages are addressed to."""
    leased: int
    """In flight, not acknowledged."""
    waiting: int
    """Awaiting redelivery."""


@dataclass(frozen=True, slots=True)
class MessageFacts:
    message_id: int
    sender_id: int
    sender: str | None
    receiver_id: int
    receiver: str | None
    context: int
    priority: int
    arrived: datetime
    headers: dict[str, str]
    size: int
    preview: bytes


@dataclass(frozen=True, slots=True)
class WholeMessage:
    message_id: int
    queue_id: int
    sender_id: int
    receiver_id: int
    context: int
    priority: int
    arrived: datetime
    headers: dict[str, str]
    body: bytes
    sender: str | None
    receiver: str | None


class QueueFactsReader:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._depths: dict[int, int] = {}
        self._next_count = float("-inf")
        self._counting = asyncio.Lock()

    async def depths(self) -> dict[int, int]:
        """Return the depths of all queues with messages, counted recently."""
        loop = asyncio.get_running_loop()
        async with self._counting:
            begin = loop.time()
            if begin >= self._next_count:
                rows = await self._store.call("depths")
                self._depths = {row[0]: row[1] for row in rows}
                took = loop.time() - begin
                self._next_count = loop.time() + max(FRESH_SECONDS, RESPITE * took)
        return self._depths

    async def page(self, wish: Wish | None = None) -> Page[QueueFacts]:
        """List queues. Sorted by name, id or depth."""
        wish = wish or Wish()
        wish.check(SORTS)
        if wish.sort == "depth":
            found, _ = await self._by_depth(wish.search, deepest_first=wish.descending)
            ids, total = found[wish.offset : wish.offset + wish.limit], len(found)
        else:
            ids, total = await QUEUES.ids(self._store, wish)
        return Page(await self._facts(ids), total)

    async def deepest(self, most: int) -> tuple[list[tuple[str, int, datetime | None]], int]:
        """Return name, depth and oldest message of the deepest queues, and the total depth of the others."""
        ids, depths = await self._by_depth("", deepest_first=True)
        found = await self._store.call("oldest_in_queues", ids[:most])
        others = sum(depths.get(each, 0) for each in ids[most:])
        return [(row[1], depths.get(row[0], 0), row[2]) for row in found], others

    async def names(self, ids: Sequence[int]) -> dict[int, str]:
        """Return the names of queues by id, without deleted queues."""
        rows = await self._store.call("find_queues", ids, None)
        return {row[0]: row[1] for row in rows}

    async def one(self, queue_id: int) -> QueueFacts | None:
        found = await self._facts([queue_id])
        return found[0] if found else None

    async def _by_depth(self, search: str, *, deepest_first: bool) -> tuple[list[int], dict[int, int]]:
        """Return the ids of queues with a text in their name, ordered by depth, and all depths."""
        depths = await self.depths()
        ids = [row[0] for row in await self._store.query(SEARCH, search)]
        return sorted(ids, key=lambda each: depths.get(each, 0), reverse=deepest_first), depths

    async def _facts(self, ids: list[int]) -> tuple[QueueFacts, ...]:
        rows = await self._store.call("facts_of_queues", ids, BOUND)
        depths = {} if all(row["is_exact"] for row in rows) else await self.depths()
        return tuple(
            QueueFacts(
                row["queue_id"],
                row["queue_name"],
                tuple(row["depths"]),
                max(sum(row["depths"]), 0 if row["is_exact"] else depths.get(row["queue_id"], 0)),
                row["is_exact"],
                row["oldest"],
                row["receivers"],
                row["leased"],
                row["waiting"],
            )
            for row in rows
        )

    async def messages(self, queue_id: int, wish: Wish | None = None) -> Page[MessageFacts]:
        """List messages of a queue, without taking them. Sorted by priority (the order of reading) or by age;
        they are not searched."""
        wish = wish or Wish("priority")
        wish.check(MESSAGE_SORTS)
        rows = await self._store.call(
            "peek_queue",
            queue_id,
            MESSAGE_SORTS[wish.sort],
            wish.descending,
            wish.offset,
            wish.limit,
            PREVIEW,
        )
        queue = await self.one(queue_id)
        total = 0 if queue is None else queue.depth
        found = tuple(
            MessageFacts(*(*row[:8], headers_of(row["headers"]), row["size"], row["preview"])) for row in rows
        )
        return Page(found, max(total, wish.offset + len(found)), queue is None or queue.is_exact)

    async def message(self, queue_id: int, message_id: int) -> WholeMessage:
        rows = await self._store.query(MESSAGE, queue_id, [message_id])
        if not rows:
            raise NoSuchMessage(f"message {message_id} is not in that queue any more")
        row = rows[0]
        ends = await self._store.call("find_clients", [row["sender_id"], row["receiver_id"]])
        names: dict[int, str] = {each[0]: each[1] for each in ends}
        sender, receiver = (names.get(row[each]) for each in ("sender_id", "receiver_id"))
        return WholeMessage(*(*row[:7], headers_of(row["headers"]), row["message"], sender, receiver))
