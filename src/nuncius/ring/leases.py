"""Leases that an owner has granted: promises not to change a key before its holders know.

A change first stops new leases of its key and asks every holder to return its lease. It continues when all
have agreed, or when the remaining leases have expired, with a guard time for their clocks. Further changes of
that key wait with it; other keys are not affected.

A process that replaces a crashed one does not know its leases. So the time at which all leases have expired
is recorded in the store, in coarse steps, before the first lease that it covers. The next process changes
nothing before that time, or before a lease can have expired since its own start, whichever is sooner.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable

from nuncius.ring.lease_clock import Clock

log = logging.getLogger(__name__)

LEASE_SECONDS = 5
LEASE_GUARD_SECONDS = 1
OUTSTANDING = float(LEASE_SECONDS + LEASE_GUARD_SECONDS)
MARK_SECONDS = 60.0  # step of the recorded time
MAX_LEASES = 100_000
MAX_HOLDER = 300  # characters of an address

Revoke = Callable[[str, str], Awaitable[bool]]
"""Asks a holder (its address) to return its lease of a key; True if it has."""
Note = Callable[[float], Awaitable[None]]
"""Records in the store the wall-clock time at which all leases have expired."""


class _Modification:
    __slots__ = ("clear", "count")

    def __init__(self, clear: asyncio.Task[None] | None) -> None:
        self.clear = clear
        self.count = 0


class GrantedLeases:
    def __init__(
        self,
        clock: Clock,
        revoke: Revoke,
        note: Note,
        *,
        noted: float = 0.0,
        most: int = MAX_LEASES,
    ) -> None:
        self._clock = clock
        self._revoke = revoke
        self._note = note
        self._noted = 0.0  # wall-clock time
        self._noting: asyncio.Task[None] | None = None
        self._most = most
        self._holders: dict[str, dict[str, float]] = {}  # by key: the end of the lease of each holder
        self._order: OrderedDict[tuple[str, str], float] = OrderedDict()  # the same, ordered by end
        self._modified: dict[str, _Modification] = {}
        before = min(noted - clock.wall(), OUTSTANDING)  # leases that the last process may have granted
        self._not_before = clock.now() + before if before > 0 else 0.0

    def __len__(self) -> int:
        return len(self._order)

    async def prepare(self) -> None:
        """Extend the recorded time if needed. Call this before the read for which a lease is to be
        granted."""
        if self._clock.wall() + OUTSTANDING + MARK_SECONDS / 2 > self._noted:
            if self._noting is None or self._noting.done():
                self._noting = asyncio.ensure_future(self._note_again())
            await asyncio.shield(self._noting)

    async def _note_again(self) -> None:
        mark = self._clock.wall() + OUTSTANDING + MARK_SECONDS
        await self._note(mark)
        self._noted = mark

    def grant(self, key: str, holder: str) -> bool:
        """Grant a lease for a value just read, unless the key is being changed or there are too many
        leases."""
        now = self._clock.now()
        until = now + OUTSTANDING
        self._forget_ended(now)
        if key in self._modified or self._clock.wall() + OUTSTANDING > self._noted:
            return False
        if not 0 < len(holder) <= MAX_HOLDER:
            return False
        name = (key, holder)
        if name not in self._order and len(self._order) >= self._most:
            return False
        self._order.pop(name, None)
        self._order[name] = until
        self._holders.setdefault(key, {})[holder] = until
        return True

    @contextlib.asynccontextmanager
    async def modifying(self, key: str) -> AsyncIterator[None]:
        """Enter when no lease of the key is left; grant none until the context ends."""
        if self._not_before:
            await self._clock.sleep_until(self._not_before)
            self._not_before = 0.0
        modification = self._begin(key)
        try:
            if modification.clear is not None:
                await asyncio.shield(modification.clear)
            yield
        finally:
            self.end(key)

    def begin(self, key: str) -> bool:
        """Begin a change at once, if no lease of the key is left. The caller then calls `end`."""
        if self._not_before or key in self._holders:
            return False
        self._begin(key)
        return True

    def _begin(self, key: str) -> _Modification:
        modification = self._modified.get(key)
        if modification is None:
            held = self._holders.get(key)
            clear = asyncio.ensure_future(self._take_back(key, held)) if held else None
            modification = self._modified[key] = _Modification(clear)
        modification.count += 1
        return modification

    def end(self, key: str) -> None:
        modification = self._modified[key]
        modification.count -= 1
        if not modification.count:
            if modification.clear is None or modification.clear.done():
                self._ended(key)
            else:  # the change was cancelled: wait until the holders have answered
                modification.clear.add_done_callback(lambda _: self._ended(key))

    def _ended(self, key: str) -> None:
        modification = self._modified.get(key)
        if modification is not None and not modification.count:
            del self._modified[key]

    async def _take_back(self, key: str, held: dict[str, float]) -> None:
        await asyncio.gather(*(self._take_back_from(key, holder, until) for holder, until in held.items()))
        for holder in self._holders.pop(key, ()):
            self._order.pop((key, holder), None)

    async def _take_back_from(self, key: str, holder: str, until: float) -> None:
        if until <= self._clock.now():
            return
        asked = asyncio.ensure_future(self._ask(key, holder))
        over = asyncio.ensure_future(self._clock.sleep_until(until))
        try:
            await asyncio.wait((asked, over), return_when=asyncio.FIRST_COMPLETED)
            if not (asked.done() and asked.result()):
                await over
        finally:
            asked.cancel()
            over.cancel()

    async def _ask(self, key: str, holder: str) -> bool:
        try:
            return await self._revoke(holder, key)
        except Exception as error:
            log.info("a lease is waited for", extra={"holder": holder, "error": str(error)})
            return False

    def held(self) -> list[str]:
        """Return the keys with leases."""
        self._forget_ended(self._clock.now())
        return list(self._holders)

    async def close(self) -> None:
        """Record the remaining leases, so that the next process waits no longer than needed."""
        if self._noted:
            self._forget_ended(self._clock.now())
            left = max(self._order.values(), default=0.0) - self._clock.now()
            await self._note(self._clock.wall() + left if left > 0 else 0.0)

    def _forget_ended(self, now: float) -> None:
        while self._order:
            name, until = next(iter(self._order.items()))
            if until > now:
                return
            del self._order[name]
            key, holder = name
            held = self._holders.get(key)
            if held is not None and held.get(holder) == until and key not in self._modified:
                del held[holder]
                if not held:
                    del self._holders[key]
