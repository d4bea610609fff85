"""The storage layer of one node: access to every key, on any node.

Keys of this node are read and changed through its `Owner`, all others through the node that owns them. A key
of another node that is read often gets a lease and stays in the cache until that ends.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from nuncius.ring.cache import Cache, Value
from nuncius.ring.lease_clock import Clock
from nuncius.ring.lease_queries import Queries
from nuncius.ring.owner import MAX_KEY, NotMine, Owner, check
from nuncius.ring.peers import Connect, FoundKey, Unreached
from nuncius.ring.ring import Ring, group_of, hash_of
from nuncius.ring.storage import KeyStatus, OwnerSilent, Post, StorageError
from nuncius.store.calls.keys import APPEND, POST, PUT, RAISE, REMOVE, Mention

log = logging.getLogger(__name__)

CACHE = 64 << 20  # bytes
PATIENCE = 10.0  # seconds that an owner may be away before calls fail
PAUSE = 0.1
BATCH = 1000  # keys of a call
NOTHING = FoundKey(None)
T = TypeVar("T")


def _mention(post: Post) -> Mention:
    group = group_of(post.key)
    if not group.isascii() or "\0" in group:  # the key of an entry is UTF-8 without NUL
        group = group.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        group = group.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return Mention(post.list_key, post.item, group, post.body)


class RingStorage:
    def __init__(
        self,
        me: str,
        owner: Owner,
        connect: Connect,
        clock: Clock,
        *,
        caching: bool = True,
        cache: int = CACHE,
        patience: float = PATIENCE,
    ) -> None:
        self.me = me
        self._owner = owner
        self._connect = connect
        self._clock = clock
        self._caching = caching
        self._cache = Cache(cache)
        self._queries = Queries(clock)
        self._patience = patience
        self._ring: Ring | None = None
        self._ready = asyncio.Event()

    @property
    def ring(self) -> Ring | None:
        """The ring that this node is in, or None."""
        return self._ring

    @property
    def cache(self) -> Cache:
        return self._cache

    def enter(self, ring: Ring) -> None:
        """Set the current ring."""
        self._ring = ring
        self._ready.set()

    def give_up(self) -> None:
        """Stop waiting for the ring: waiting calls fail."""
        self._ready.set()

    def revoked(self, key: str) -> None:
        """Drop a key whose owner is about to change it."""
        self._cache.drop(key)

    # For the application

    async def get(self, key: str) -> str | None:
        """Return the value, or None if there is none."""
        value = self._at_hand(False, key)
        if value is None:
            value = (await self._read(False, (key,)))[0]
        return cast("str | None", value)

    async def get_list(self, key: str) -> list[str]:
        """Return the items in the order in which they were added; empty also if the list does not exist."""
        return list((await self.find_lists((key,)))[0] or ())

    async def get_many(self, keys: Sequence[str]) -> list[str | None]:
        """Return the values of many keys, with few calls."""
        return cast("list[str | None]", await self._find(False, keys))

    async def get_lists(self, keys: Sequence[str]) -> list[list[str]]:
        """Return the lists of many keys, with few calls."""
        return [list(found or ()) for found in await self.find_lists(keys)]

    async def find_lists(self, keys: Sequence[str]) -> list[list[str] | None]:
        """Return lists like `get_lists`, but None for one that does not exist. Do not change the lists."""
        return cast("list[list[str] | None]", await self._find(True, keys))

    async def put(self, key: str, value: str) -> None:
        await self.write(PUT, key, value)

    async def raise_to(self, key: str, number: int) -> None:
        """Put a number (from 0 on), unless the stored one is as large. So a late call never undoes another
        one."""
        await self.write(RAISE, key, str(number))

    async def append(self, key: str, item: str) -> KeyStatus:
        """Append an item. Return OK or ITEM_EXISTS. Creates the list if it does not exist."""
        return KeyStatus(await self.write(APPEND, key, item))

    async def remove(self, key: str, item: str) -> KeyStatus:
        """Remove an item. Return OK, KEY_NOT_FOUND or ITEM_NOT_FOUND."""
        return KeyStatus(await self.write(REMOVE, key, item))

    async def put_and_publish(self, post: Post) -> int:
        """Store a post. Return the new number of items in the list."""
        return await self.write(POST, post.key, post.value, _mention(post))

    def post_soon(self, post: Post, done: Callable[[Any], None]) -> bool:
        """Store a post whose keys are on this node, if nothing has to be waited for. `done` gets the result
        of `put_and_publish` or an exception. Return False if nothing was done."""
        if self._ring is None or self._ring.owner(post.key) != self.me:
            return False
        mention = _mention(post)
        check(POST, post.key, post.value, mention)
        return self._owner.post_soon(post.key, post.value, mention, done)

    # For other nodes and clients

    async def read_for(
        self, lists: bool, keys: Sequence[str], wants: Sequence[bool], client: str
    ) -> list[FoundKey]:
        """Read for a client that may want leases of its own, which only the owner can grant."""
        if not any(wants):
            return [FoundKey(value) for value in await self._find(lists, keys)]

        async def ask(owner: str, some: Sequence[int]) -> Sequence[FoundKey]:
            return await self._ask(
                owner, lists, [keys[n] for n in some], [bool(client) and wants[n] for n in some], client
            )

        return await self._gather(keys, ask)

    async def write(self, kind: int, key: str, item: str, mention: Mention | None = None) -> int:
        """Change a key through its owner, on any node."""
        check(kind, key, item, mention)

        async def change(owner: str) -> int:
            if owner == self.me:
                return await self._owner.write(kind, key, item, mention)
            return await self._connect(owner).write(kind, key, item, mention)

        return await self._routed(key, change, repeatable=False)

    # Inside

    def _at_hand(self, lists: bool, key: str) -> Value | None:
        value = self._owner.in_memory(lists, key)
        return value if value is not None else self._cache.find(lists, key, self._clock.now())

    async def _find(self, lists: bool, keys: Sequence[str]) -> list[Value | None]:
        found: list[Value | None] = [None] * len(keys)
        self._cache.find_all(lists, keys, found, self._clock.now())
        self._owner.all_in_memory(lists, keys, found)
        missing = [n for n, value in enumerate(found) if value is None]
        if missing:
            values = await self._read(lists, [keys[n] for n in missing])
            for n, value in zip(missing, values, strict=True):
                found[n] = value
        return found

    async def _read(self, lists: bool, keys: Sequence[str]) -> list[Value | None]:
        async def ask(owner: str, some: Sequence[int]) -> Sequence[FoundKey]:
            names = [keys[n] for n in some]
            if owner == self.me:
                return await self._owner.read(lists, names)
            wants = [self._caching and self._queries.wants_lease(name) for name in names]
            if not any(wants):
                return await self._ask(owner, lists, names, wants, "")
            return await self._ask_and_keep(owner, lists, names, wants)

        return [found.value for found in await self._gather(keys, ask)]

    async def _ask_and_keep(
        self, owner: str, lists: bool, names: Sequence[str], wants: Sequence[bool]
    ) -> Sequence[FoundKey]:
        sent = self._clock.now()
        fills = [self._cache.begin(name) for name in names]
        try:
            answers = await self._ask(owner, lists, names, wants, self.me)
            for fill, found in zip(fills, answers, strict=True):
                if found.lease_seconds > 0 and found.value is not None:
                    self._cache.keep(fill, lists, found.value, sent + found.lease_seconds)
        finally:
            for fill in fills:
                self._cache.end(fill)
        return answers

    async def _ask(
        self, owner: str, lists: bool, names: Sequence[str], wants: Sequence[bool], client: str
    ) -> Sequence[FoundKey]:
        if owner == self.me:
            return await self._owner.read(lists, names, wants, client)
        return await self._connect(owner).read(lists, names, wants, client)

    async def _gather(
        self, keys: Sequence[str], ask: Callable[[str, Sequence[int]], Awaitable[Sequence[FoundKey]]]
    ) -> list[FoundKey]:
        """Ask each owner once for all its keys, all owners at the same time. Keys that are too long have no
        value and are skipped."""
        if len(keys) == 1 and len(keys[0]) <= MAX_KEY:
            return list(await self._routed(keys[0], lambda owner: ask(owner, (0,)), repeatable=True))
        ring = await self._current()
        groups: dict[str, list[int]] = {}
        for n, key in enumerate(keys):
            if len(key) <= MAX_KEY:
                groups.setdefault(ring.owner(key), []).append(n)
        batches = [some[at : at + BATCH] for some in groups.values() for at in range(0, len(some), BATCH)]

        async def one(some: Sequence[int]) -> Sequence[FoundKey]:
            return await self._routed(keys[some[0]], lambda owner: ask(owner, some), repeatable=True, of=ring)

        try:
            answers = await asyncio.gather(*map(one, batches))
        except NotMine:  # the ring has changed: the keys may have other owners now
            return await self._gather(keys, ask)
        found: dict[int, FoundKey] = {}
        for some, part in zip(batches, answers, strict=True):
            found.update(zip(some, part, strict=True))
        return [found.get(n, NOTHING) for n in range(len(keys))]

    async def _routed(
        self,
        key: str,
        ask: Callable[[str], Awaitable[T]],
        *,
        repeatable: bool,
        of: Ring | None = None,
    ) -> T:
        """Ask the owner of a key. Retry while it cannot be reached; after a lost answer, retry only if
        `repeatable`. With `of`, raise NotMine if the ring is another one."""
        deadline = self._clock.now() + self._patience
        while True:
            ring = await self._current()
            if of is not None and ring is not of:
                raise NotMine
            try:
                return await ask(ring.owner_of(hash_of(key)))
            except NotMine:
                continue
            except OwnerSilent as error:
                if not (repeatable or isinstance(error, Unreached)) or self._clock.now() > deadline:
                    raise
                log.debug("an owner does not answer", extra={"error": str(error)})
            await asyncio.sleep(PAUSE)

    async def _current(self) -> Ring:
        if self._ring is None:
            await self._ready.wait()
        if self._ring is None:
            raise StorageError("the node ends before its ring is complete")
        return self._ring
