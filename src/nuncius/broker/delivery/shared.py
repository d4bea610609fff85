"""The policy of consumer groups: members share a subscription, each reads some of its partitions.

PostgreSQL assigns the partitions. A member that asks for more gets the entries after the confirmed position,
the same ones until it confirms; so a lost answer costs nothing. A partition moves to another member when its
owner asks for more, which marks the previous entries as processed. A partition of an owner that was silent or
too slow is taken away; the owner learns it when it confirms, by the generation that it names.
"""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from nuncius.broker.background.duties import Duties
from nuncius.broker.background.listener import Listener
from nuncius.broker.background.signals import news_before
from nuncius.broker.caller import NODE, Caller
from nuncius.broker.delivery.cursor import Cursor
from nuncius.broker.delivery.tails import Tails, TailSlice
from nuncius.broker.errors import AlreadyExists, InvalidInput, NoSuchSubscription, NotFound
from nuncius.broker.limits import Limits, check_name, check_subscriber
from nuncius.broker.topics.topics import Topics
from nuncius.store.queries import query
from nuncius.store.store import Store

JOIN = query("groups", "join")
LEAVE = query("groups", "leave")
FIND = query("groups", "find")
LIST = query("groups", "list")
NOTE = query("groups", "note")
EXPIRE = query("groups", "expire")
SHARES = query("groups", "shares")
CONFIRM = query("groups", "confirm")

SHORTEST_SESSION, LONGEST_SESSION = 1.0, 3600.0  # seconds
EXPIRE_SECONDS = 1.0
REMEMBERED = 100_000
NO_MEMBER, NOT_ITS_OWN = -2, -6


class NoSuchMember(NotFound):
    """The member never joined, or it was considered gone."""


class NotOwner(AlreadyExists):
    """The partition was assigned to another member meanwhile."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: int
    name: str
    joined_at: datetime
    last_seen: datetime
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shares:
    """Partitions of a member: places are (partition, position), those with unread entries first."""

    topic: str
    generation: int
    places: tuple[tuple[int, int], ...]
    unread: int


@dataclass(frozen=True, slots=True)
class MemberEntries:
    """Entries for a member, and its partitions. It names `generation` when it confirms them."""

    generation: int
    partitions: tuple[int, ...]
    entries: Sequence[TailSlice]


class Groups:
    def __init__(
        self, store: Store, topics: Topics, tails: Tails, listener: Listener, limits: Limits
    ) -> None:
        self._store = store
        self._topics = topics
        self._tails = tails
        self._listener = listener
        self._limits = limits
        self._heard: set[int] = set()  # members with a heartbeat that is not written to the store yet
        self._turns = itertools.count()
        self._groups: dict[int, tuple[str, str]] = {}  # topic and subscriber of members

    async def join(self, topic: str, subscriber: str, name: str, session: float) -> int:
        """Add a member and return its id. It needs at least one heartbeat within each session's time."""
        check_subscriber(subscriber)
        check_name("member", name)
        if not SHORTEST_SESSION <= session <= LONGEST_SESSION:
            raise InvalidInput(f"a session is {SHORTEST_SESSION:g} to {LONGEST_SESSION:g} seconds")
        holder = self._listener.holder
        rows = await self._store.execute(JOIN, topic, subscriber, name, holder, session)
        member: int | None = rows[0][0]
        if member is None:
            raise NoSuchSubscription(f"{subscriber!r} is not subscribed to {topic!r}")
        self._heard.add(member)
        return member

    async def check(self, member: int, topic: str, subscriber: str) -> None:
        """Raise NoSuchMember unless the member belongs to this subscription."""
        group = self._groups.get(member)
        if group is None:
            rows = await self._store.query(FIND, member)
            if not rows:
                raise _unknown(member)
            if len(self._groups) >= REMEMBERED:
                self._groups.clear()
            group = self._groups[member] = (rows[0][0], rows[0][1])
        if group != (topic, subscriber):
            raise _unknown(member)

    async def leave(self, member: int) -> None:
        rows = await self._store.execute(LEAVE, [member])
        self._heard.discard(member)
        if not rows[0][0]:
            raise _unknown(member)

    async def members(self, topic: str, subscriber: str) -> Sequence[GroupMember]:
        rows = await self._store.query(LIST, topic, subscriber)
        return [
            GroupMember(member_id, name, joined_at, last_seen, tuple(partitions))
            for member_id, name, joined_at, last_seen, partitions in rows
        ]

    async def heartbeat(self, member: int) -> None:
        """Record a heartbeat of a busy member."""
        rows = await self._store.query(NOTE, [member], self._listener.holder)
        if not rows[0][0]:
            raise _unknown(member)

    async def shares(self, member: int) -> Shares:
        """Return the partitions of a member. The request marks its previous entries as processed."""
        self._heard.add(member)
        rows = await self._store.query(SHARES, member)
        if not rows:
            self._heard.discard(member)
            raise _unknown(member)
        places = [(row["partition"], row["position"], row["unread"]) for row in rows if row["partition"]]
        turn = next(self._turns) % len(places) if places else 0
        places = sorted(places[turn:] + places[:turn], key=lambda place: not place[2])
        return Shares(
            rows[0]["topic_name"],
            rows[0]["generation"],
            tuple(place[:2] for place in places),
            sum(unread for *_, unread in places),
        )

    async def read(self, member: int, limit: int, wait: float = 0, *, caller: Caller = NODE) -> MemberEntries:
        """Return up to so many entries after the confirmed positions of a member's partitions. Wait for the
        first. Stop soon after the size of the largest allowed entry: the next request gets the rest."""
        limit = min(limit, self._limits.max_batch)
        deadline = asyncio.get_running_loop().time() + wait
        shares = await self.shares(member)
        topic = await self._topics.existing(shares.topic)
        with self._tails.signals.watching(topic.topic_id) as news:
            news.set()  # entries may have arrived before the watch began
            while True:
                if len(topic.partition_ids) < max(shares.places, default=(0, 0))[0]:
                    topic = await self._topics.existing(shares.topic)
                unread = shares.places[: shares.unread]
                places = {each: (topic.partition_id(each), position) for each, position in unread}
                found = await Cursor(self._tails, topic, places).look_for(
                    limit, self._limits.max_body, caller
                )
                if found or not await news_before(deadline, news):
                    partitions = tuple(sorted(partition for partition, _ in shares.places))
                    return MemberEntries(shares.generation, partitions, found)
                news.clear()
                shares = await self.shares(member)

    async def confirm(
        self, member: int, generation: int, partitions: Sequence[int], positions: Sequence[int]
    ) -> None:
        """Confirm everything below these positions: all of them or none."""
        self._heard.add(member)
        rows = await self._store.query(CONFIRM, member, generation, partitions, positions)
        code, wrong = rows[0]
        if code == NO_MEMBER:
            raise _unknown(member)
        if code == NOT_ITS_OWN:
            raise NotOwner(f"partition {wrong} was not yours all the time since generation {generation}")
        if code is not None:
            raise InvalidInput(f"there is no such position in partition {wrong} yet")

    # Duties

    def take_on(self, duties: Duties) -> None:
        duties.add("groups", EXPIRE_SECONDS, self.expire)

    async def note(self) -> int:
        """Write the heartbeats that this node has received to the store."""
        heard, self._heard = self._heard, set()
        if heard:
            try:
                await self._store.query(NOTE, sorted(heard), self._listener.holder)
            except BaseException:
                self._heard |= heard
                raise
        return 0

    async def expire(self) -> int:
        """Remove members that are gone. Return how many."""
        await self.note()
        if not self._listener.may_judge:
            return 0
        rows = await self._store.query(EXPIRE)
        return rows[0][0] or 0


def _unknown(member: int) -> NoSuchMember:
    return NoSuchMember(f"there is no member {member}; join again")
