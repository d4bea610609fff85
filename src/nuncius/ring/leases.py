"""Leases that an owner has granted: promises not to change a key before its holders know.

A modification first stops new leases of its key and asks every holder to give its lease back; it goes ahead
when all have said yes, or when the leases of those who have not are over, a guard time for their clocks
included. Further modifications of that key wait with it; other keys know nothing of it.

A process that takes over from one that died cannot know what that one promised. So the time by which every
promise is over is noted in the store, in coarse steps, before the first promise it covers; the next process
changes nothing before that time, or before a lease can have run out since its own start, whichever is sooner.
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
MARK_SECONDS = 60.0  # the steps of the note
MAX_LEASES = 100_000
MAX_HOLDER = 300  # characters of an address

Revoke = Callable[[str, str], Awaitable[bool]]
"""Asks a holder (its address) to give its lease of a key back; True when it has."""
Note = Callable[[float], Awaitable[None]]
"""Writes down, for good, by when (on the wall) all leases are over."""


class _Modification:
    __slots__ = ("clear", "count")

    def __init__(self, clear: asyncio.Task[None] | None) -> None:
        self.clear = clear
        self.count = 0


class Leases:
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
        self._noted = 0.0  # on the wall
        self._noting: asyncio.Task[None] | None = None
        self._most = most
        self._holders: dict[str, dict[str, float]] = {}  # by key: until when, for each holder
        self._order: OrderedDict[tuple[str, str], float] = OrderedDict()  # the same, the first to end first
        self._modified: dict[str, _Modification] = {}
        before = min(noted - clock.wall(), OUTSTANDING)  # what the last process may have promised
        self._not_before = clock.now() + before if before > 0 else 0.0

    def __len__(self) -> int:
        return len(self._order)

    async def prepare(self) -> None:
        """Call before the read for which a lease is to be granted: the note has to cover it."""
        if self._clock.wall() + OUTSTANDING + MARK_SECONDS / 2 > self._noted:
            if self._noting is None or self._noting.done():
                self._noting = asyncio.ensure_future(self._note_again())
            await asyncio.shield(self._noting)

    async def _note_again(self) -> None:
        mark = self._clock.wall() + OUTSTANDING + MARK_SECONDS
        await self._note(mark)
        self._noted = mark

    def grant(self, key: str, holder: str) -> bool:
        """A lease for what was just read, unless the key is being changed or there are too many leases."""
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
        """The context begins when nobody holds a lease of the key; until it ends nobody gets one."""
        if self._not_before:
            await self._clock.sleep_until(self._not_before)
            self._not_before = 0.0
        modification = self._modified.get(key)
        if modification is None:
            held = self._holders.get(key)
            clear = asyncio.ensure_future(self._take_back(key, held)) if held else None
            modification = self._modified[key] = _Modification(clear)
        modification.count += 1
        try:
            if modification.clear is not None:
                await asyncio.shield(modification.clear)
            yield
        finally:
            modification.count -= 1
            if not modification.count:
                if modification.clear is None or modification.clear.done():
                    self._end(key)
                else:  # whoever wanted to change it is gone: the question to the holders is not taken back
                    modification.clear.add_done_callback(lambda _: self._end(key))

    def _end(self, key: str) -> None:
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
        """The keys of which somebody has a lease."""
        self._forget_ended(self._clock.now())
        return list(self._holders)

    async def close(self) -> None:
        """Notes what is still promised, so that the next process waits no longer than that."""
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
