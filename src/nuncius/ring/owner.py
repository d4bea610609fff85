"""The keys that a node owns: in its store, the hot ones in its memory, with leases for others.

Only the owner changes a key, so it knows when what it has in memory is outdated. While a key is changed,
every look goes to PostgreSQL, and nothing of it is kept.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from nuncius.broker import future
from nuncius.ring.cache import Cache, Fill, Value
from nuncius.ring.leases import LEASE_SECONDS, Leases
from nuncius.ring.peers import Found
from nuncius.ring.ring import Range, hash_of
from nuncius.ring.storage import Refused
from nuncius.store.calls.keys import APPEND, REMOVE, Keys, Mention, ReadCall, WriteCall
from nuncius.store.errors import StoreError

MAX_KEY = 1024  # bytes
MAX_VALUE = 8 << 20
MEMORY = 64 << 20


class NotMine(Exception):
    """The key has gone to another node meanwhile."""


class Owner:
    def __init__(self, keys: Keys, leases: Leases | None, *, memory: int = MEMORY) -> None:
        """Without leases, and without memory, several nodes may own the same keys in one store."""
        self._keys = keys
        self._leases = leases
        self._memory = Cache(memory if leases is not None else 0)
        self._writing: dict[int, int] = {}  # changes under way, by hash
        self._written = asyncio.Event()
        self._frozen: Sequence[Range] = ()
        self._thawed = asyncio.Event()
        self._leaving = False
        self._departures = 0

    def in_memory(self, lists: bool, key: str) -> Value | None:
        return self._memory.find(lists, key)

    def all_in_memory(self, lists: bool, keys: Sequence[str], found: list[Value | None]) -> None:
        """Fills in those that are in memory."""
        self._memory.find_all(lists, keys, found)

    async def read(
        self, lists: bool, keys: Sequence[str], wants: Sequence[bool] | None = None, client: str = ""
    ) -> list[Found]:
        """Values or lists; where a lease is wanted, with one if it can be had."""
        if self._leaving:
            for key in keys:
                await self._stays(key)
        departures = self._departures
        leases = self._leases
        if leases is not None and wants is not None and any(wants):
            with suppress(StoreError):  # then there is no lease, but an answer
                await leases.prepare()
        found = [self._memory.find(lists, key) for key in keys]
        missing = [n for n, value in enumerate(found) if value is None]
        fills: dict[int, Fill] = {}
        if missing:
            # While we look, what was found in memory may change, too: then there is no lease of it either.
            fills = {
                n: self._memory.begin(key)
                for n, key in enumerate(keys)
                if found[n] is None or (wants is not None and wants[n])
            }
            try:
                values = await self._look(lists, [keys[n] for n in missing])
                for n, value in zip(missing, values, strict=True):
                    found[n] = value
                    if value is not None:
                        self._memory.keep(fills[n], lists, value)
            finally:
                for fill in fills.values():
                    self._memory.end(fill)
            if departures != self._departures:  # what we looked for may have left before we looked
                raise NotMine
        return [
            Found(value, self._lease(keys[n], wants, n, client, fills) if value is not None else 0)
            for n, value in enumerate(found)
        ]

    def _lease(
        self, key: str, wants: Sequence[bool] | None, n: int, client: str, fills: dict[int, Fill]
    ) -> int:
        """A lease for what was read, unless it has been changed since."""
        if self._leases is None or wants is None or not wants[n] or self._is_frozen(hash_of(key)):
            return 0
        if n in fills and fills[n].spoiled:
            return 0
        return LEASE_SECONDS if self._leases.grant(key, client) else 0

    async def _look(self, lists: bool, keys: Sequence[str]) -> Sequence[Value | None]:
        found, done = future.new()
        self._keys.read_soon(ReadCall(done, lists, [hash_of(key) for key in keys], keys))
        values: Sequence[Value | None] = await found
        return values

    async def write(self, kind: int, key: str, item: str, mention: Mention | None = None) -> int:
        """A change that was checked, when nobody holds a lease of what it changes."""
        names = [key] if mention is None else [key, mention.list_key]
        async with self._under_way(hash_of(key)), self._closed(names):
            answer, done = future.new()
            self._keys.write_soon(WriteCall(done, kind, hash_of(key), key, item, mention))
            result: int = await asyncio.shield(answer)
            return result

    @asynccontextmanager
    async def _closed(self, names: Sequence[str]) -> AsyncIterator[None]:
        """Nobody holds a lease of these keys, and nothing of them is kept in memory."""
        if self._leases is None:
            yield
            return
        async with self._leases.modifying(names[0]), self._modifying_too(names[1:]):
            for name in names:
                self._memory.close(name)
            try:
                yield
            finally:
                for name in names:
                    self._memory.open(name)

    @asynccontextmanager
    async def _modifying_too(self, names: Sequence[str]) -> AsyncIterator[None]:
        if not names:
            yield
            return
        assert self._leases is not None
        async with self._leases.modifying(names[0]):
            yield

    # Handing over

    def _is_frozen(self, hashed: int) -> bool:
        return any(hashed in each for each in self._frozen)

    async def _stays(self, key: str) -> None:
        """Waits while the key is about to leave; whoever waited has to ask again who owns it."""
        if self._is_frozen(hash_of(key)):
            await self._thawed.wait()
            raise NotMine

    @asynccontextmanager
    async def _under_way(self, hashed: int) -> AsyncIterator[None]:
        if self._frozen and self._is_frozen(hashed):
            await self._thawed.wait()
            raise NotMine
        self._writing[hashed] = self._writing.get(hashed, 0) + 1
        try:
            yield
        finally:
            self._writing[hashed] -= 1
            if not self._writing[hashed]:
                del self._writing[hashed]
                self._written.set()

    @asynccontextmanager
    async def frozen(self, ranges: Sequence[Range]) -> AsyncIterator[None]:
        """Nothing in these ranges is being changed, and nobody has a lease of it; reads go on."""
        self._frozen = ranges
        self._thawed.clear()
        try:
            while any(self._is_frozen(hashed) for hashed in self._writing):
                self._written.clear()
                await self._written.wait()
            if self._leases is not None:
                held = [key for key in self._leases.held() if self._is_frozen(hash_of(key))]
                await asyncio.gather(*(self._take_back(key) for key in held))
            yield
        finally:
            self._leaving = False
            self._frozen = ()
            self._thawed.set()

    def leave(self) -> None:
        """What is frozen is about to be forgotten: reads wait now, too."""
        self._leaving = True
        self._departures += 1
        self._memory.clear()

    async def _take_back(self, key: str) -> None:
        assert self._leases is not None
        async with self._leases.modifying(key):
            pass


def check(kind: int, key: str, item: str, mention: Mention | None) -> None:
    """Keeps what PostgreSQL or memory could not bear out of a batch."""
    for name in (key,) if mention is None else (key, mention.list_key):
        if len(name.encode("utf-8", "surrogateescape")) > MAX_KEY:
            raise Refused(f"a key has at most {MAX_KEY} bytes")
    if len(item) > MAX_VALUE or (mention is not None and len(mention.body) > MAX_VALUE):
        what = "list item" if kind in (APPEND, REMOVE) else "value"
        raise Refused(f"a {what} has at most {MAX_VALUE} bytes")
    if mention is not None and hash_of(mention.list_key) != hash_of(key):
        raise Refused("a post and its list have the same part before the colon")
