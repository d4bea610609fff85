"""A cache of keys: leased ones of other nodes, and own ones that are read often.

The result of a read may be outdated when it arrives: the key was changed, or its lease was revoked, in
between. So a reader announces each read (`begin`), and dropping a key spoils its reads in progress: their
results are used but not cached.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

Value = str | list[str]
PER_ENTRY = 200  # bytes of memory besides the strings
FOREVER = float("inf")


@dataclass(slots=True, eq=False)
class Fill:
    """A read in progress."""

    key: str
    spoiled: bool = False


@dataclass(slots=True)
class CachedKey:
    value: Value
    until: float
    size: int


class Cache:
    """A cache with a memory limit; the least recently used entry is removed first."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._entries: OrderedDict[tuple[bool, str], CachedKey] = OrderedDict()
        self._fills: dict[str, set[Fill]] = {}
        self._closed: dict[str, int] = {}
        self.bytes = 0

    def find(self, lists: bool, key: str, now: float = 0.0) -> Value | None:
        entry = self._entries.get((lists, key))
        if entry is None:
            return None
        if entry.until <= now:
            self._remove((lists, key))
            return None
        self._entries.move_to_end((lists, key))
        return entry.value

    def find_all(self, lists: bool, keys: Sequence[str], found: list[Value | None], now: float = 0.0) -> None:
        """Fill in missing values for many keys. Feeds that are read often are built from this."""
        entries = self._entries
        if not entries:
            return
        for n, key in enumerate(keys):
            if found[n] is None:
                name = (lists, key)
                entry = entries.get(name)
                if entry is not None and entry.until > now:
                    entries.move_to_end(name)
                    found[n] = entry.value

    def begin(self, key: str) -> Fill:
        fill = Fill(key, key in self._closed)
        self._fills.setdefault(key, set()).add(fill)
        return fill

    def end(self, fill: Fill) -> None:
        """End a read, whether or not its result was cached."""
        fills = self._fills.get(fill.key)
        if fills is not None:
            fills.discard(fill)
            if not fills:
                del self._fills[fill.key]

    def keep(self, fill: Fill, lists: bool, value: Value, until: float = FOREVER) -> None:
        """Cache the result of a read, unless it is spoiled or too large."""
        name = (lists, fill.key)
        size = PER_ENTRY + 2 * len(fill.key)
        size += len(value) if isinstance(value, str) else sum(60 + len(item) for item in value)
        if fill.spoiled or size > self._most // 8:
            return
        if name in self._entries:
            self._remove(name)
        self._entries[name] = CachedKey(value, until, size)
        self.bytes += size
        while self.bytes > self._most:
            self._remove(next(iter(self._entries)))

    def drop(self, key: str) -> None:
        """Forget a key and spoil its reads in progress."""
        for lists in (False, True):
            if (lists, key) in self._entries:
                self._remove((lists, key))
        for fill in self._fills.pop(key, ()):
            fill.spoiled = True

    def close(self, key: str) -> None:
        """Forget a key, and cache nothing of it until `open` is called as often as `close`."""
        self.drop(key)
        self._closed[key] = self._closed.get(key, 0) + 1

    def open(self, key: str) -> None:
        self._closed[key] -= 1
        if not self._closed[key]:
            del self._closed[key]

    def clear(self) -> None:
        self._entries.clear()
        self.bytes = 0
        for fills in self._fills.values():
            for fill in fills:
                fill.spoiled = True
        self._fills.clear()

    def _remove(self, name: tuple[bool, str]) -> None:
        self.bytes -= self._entries.pop(name).size
