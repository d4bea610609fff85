"""The keys that a node owns: in its store, those read often in memory, with leases for other nodes.

Only the owner changes a key, so it knows when its memory is outdated. While a key is being changed, every
read goes to PostgreSQL, and its result is not kept.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any

from nuncius.broker import future
from nuncius.ring.cache import Cache, Fill, Value
from nuncius.ring.leases import LEASE_SECONDS, GrantedLeases
from nuncius.ring.peers import FoundKey
from nuncius.ring.ring import HashRange, hash_of
from nuncius.ring.storage import KeyRefused
from nuncius.store.calls.keys import APPEND, POST, REMOVE, Keys, Mention, ReadCall, WriteCall
from nuncius.store.errors import StoreError

MAX_KEY = 1024  # bytes
MAX_VALUE = 8 << 20
MEMORY = 64 << 20


class NotMine(Exception):
    """The key has moved to another node."""


class Owner:
    def __init__(self, keys: Keys, leases: GrantedLeases | None, *, memory: int = MEMORY) -> None:
        """Own keys. Without leases, and so without memory, several nodes may own the same keys in one
        store."""
        self._keys = keys
        self._leases = leases
        self._memory = Cache(memory if leases is not None else 0)
        self._writing: dict[int, int] = {}  # changes in progress, by hash
        self._written = asyncio.Event()
        self._frozen: Sequence[HashRange] = ()
        self._thawed = asyncio.Event()
        self._leaving = False
        self._departures = 0

    def in_memory(self, lists: bool, key: str) -> Value | None:
        return self._memory.find(lists, key)

    def all_in_memory(self, lists: bool, keys: Sequence[str], found: list[Value | None]) -> None:
        """Fill in the values that are in memory."""
        self._memory.find_all(lists, keys, found)

    async def read(
        self, lists: bool, keys: Sequence[str], wants: Sequence[bool] | None = None, client: str = ""
    ) -> list[FoundKey]:
        """Read values or lists, with leases where they are wanted and available."""
        if self._leaving:
            for key in keys:
                await self._stays(hash_of(key))
        departures = self._departures
        leases = self._leases
        if leases is not None and wants is not None and any(wants):
            with suppress(StoreError):  # the read goes on without a lease
                await leases.prepare()
        found = [self._memory.find(lists, key) for key in keys]
        missing = [n for n, value in enumerate(found) if value is None]
        fills: dict[int, Fill] = {}
        if missing:
            # Keys found in memory may change during the read, too: then they get no lease.
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
            if departures != self._departures:  # keys may have left before they were read
                raise NotMine
        return [
            FoundKey(value, self._lease(keys[n], wants, n, client, fills) if value is not None else 0)
            for n, value in enumerate(found)
        ]

    def _lease(
        self, key: str, wants: Sequence[bool] | None, n: int, client: str, fills: dict[int, Fill]
    ) -> int:
        """Grant a lease for a key just read, unless it has changed since."""
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
        """Apply a checked change when no lease of its key is left."""
        # A post never changes a value that exists: only its list may have leases, or be in memory.
        changed = key if mention is None else mention.list_key
        hashed = hash_of(key)
        await self._stays(hashed)
        answer, done = future.new()
        self._begin(hashed)
        try:
            async with nullcontext() if self._leases is None else self._leases.modifying(changed):
                self._memory.close(changed)
                try:
                    self._keys.write_soon(WriteCall(done, kind, hashed, key, item, mention))
                    result: int = await answer
                finally:
                    self._memory.open(changed)
        finally:
            self._end(hashed)
        return result

    def post_soon(self, key: str, value: str, mention: Mention, done: Callable[[Any], None]) -> bool:
        """Store a checked post, if nothing has to be waited for; `done` gets the result of `write` or an
        exception. Return False if nothing was done."""
        hashed, leases = hash_of(key), self._leases
        if self._frozen or leases is None or not leases.begin(mention.list_key):
            return False

        def written(result: Any) -> None:
            self._memory.open(mention.list_key)
            leases.end(mention.list_key)
            self._end(hashed)
            done(result)

        self._begin(hashed)
        self._memory.close(mention.list_key)
        self._keys.write_soon(WriteCall(written, POST, hashed, key, value, mention))
        return True

    def _begin(self, hashed: int) -> None:
        self._writing[hashed] = self._writing.get(hashed, 0) + 1

    def _end(self, hashed: int) -> None:
        self._writing[hashed] -= 1
        if not self._writing[hashed]:
            del self._writing[hashed]
            self._written.set()

    # Handing over

    def _is_frozen(self, hashed: int) -> bool:
        return any(hashed in each for each in self._frozen)

    async def _stays(self, hashed: int) -> None:
        """Wait while keys with this hash move away, then raise NotMine: the caller asks again which node owns
        them."""
        if self._frozen and self._is_frozen(hashed):
            await self._thawed.wait()
            raise NotMine

    @asynccontextmanager
    async def frozen(self, ranges: Sequence[HashRange]) -> AsyncIterator[None]:
        """Wait until nothing in these ranges is being changed or leased, and keep it so. Reads go on."""
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
        """Make reads wait too: the frozen keys are about to be forgotten."""
        self._leaving = True
        self._departures += 1
        self._memory.clear()

    async def _take_back(self, key: str) -> None:
        assert self._leases is not None
        async with self._leases.modifying(key):
            pass


def check(kind: int, key: str, item: str, mention: Mention | None) -> None:
    """Refuse keys and values that are too large for PostgreSQL or memory, before they enter a batch."""
    for name in (key,) if mention is None else (key, mention.list_key):
        if len(name.encode("utf-8", "surrogateescape")) > MAX_KEY:
            raise KeyRefused(f"a key has at most {MAX_KEY} bytes")
    if len(item) > MAX_VALUE or (mention is not None and len(mention.body) > MAX_VALUE):
        what = "list item" if kind in (APPEND, REMOVE) else "value"
        raise KeyRefused(f"a {what} has at most {MAX_VALUE} bytes")
    if mention is not None and hash_of(mention.list_key) != hash_of(key):
        raise KeyRefused("a post and its list have the same part before the colon")
