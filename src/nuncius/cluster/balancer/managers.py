"""The managers behind a balancer: their addresses, their state, and open connections to them."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from nuncius.cluster.reverse_proxy.upstream import Backend

REST_SECONDS = 1.0  # before a manager that did not answer is tried again

WRITES = "Write Manager"
READS = "Read Manager"
_READ_PATHS = (b"/consumer/", b"/size")
_SUBSCRIPTIONS = b"/subscriptions"  # of topics, in the modern API
_V1 = b"/v1/"


def kind_of(method: bytes, path: bytes) -> str:
    """Choose the kind of manager for a request. Requests about topics and producers go to the write manager,
    requests about consumers to a read manager; in the modern API, other read-only requests go to a read
    manager too."""
    if path.startswith(_READ_PATHS) or (path.startswith(_V1) and _SUBSCRIPTIONS in path):
        return READS
    if path.startswith((b"/topics", b"/producer/", b"/broker", b"/partition")):
        return WRITES
    return READS if method in (b"GET", b"HEAD", b"OPTIONS") else WRITES


def is_modern(path: bytes) -> bool:
    """Return True if failures are answered in the form of /v1, not of the report."""
    return path.startswith(_V1)


@dataclass(slots=True, eq=False)
class Manager(Backend):
    down_until: float = 0.0
    silent_since: float | None = None

    def is_awake(self, now: float) -> bool:
        return self.down_until <= now and self.silent_since is None

    def rest(self) -> None:
        """Prefer other managers for a while: this one did not answer."""
        self.down_until = asyncio.get_running_loop().time() + REST_SECONDS


class Managers:
    """The managers of one kind, asked in turn."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._known: dict[tuple[str, int], Manager] = {}
        self._line: list[Manager] = []
        self._turn = 0

    def learn(self, addresses: Iterable[tuple[str, int]]) -> None:
        wanted = set(addresses)
        for address in [each for each in self._known if each not in wanted]:
            self._known.pop(address).close()
        for address in wanted:
            if address not in self._known:
                self._known[address] = Manager(*address)
        self._line = [self._known[address] for address in sorted(self._known)]

    @property
    def is_empty(self) -> bool:
        return not self._line

    @property
    def silent(self) -> list[Manager]:
        """Managers that do not answer even a health check."""
        return [manager for manager in self._line if manager.silent_since is not None]

    def __contains__(self, manager: Manager) -> bool:
        return manager in self._line

    def has_other(self, tried: Iterable[Manager]) -> bool:
        """Return True if there is another, untried manager that is neither resting nor silent."""
        now = asyncio.get_running_loop().time()
        return any(manager.is_awake(now) for manager in self._line if manager not in tried)

    def next(self, tried: Iterable[Manager]) -> Manager | None:
        """Return the next manager that was not tried for this request. If all are resting or silent, return
        the one that has rested longest: it may be back."""
        now = asyncio.get_running_loop().time()
        left = [manager for manager in self._line if manager not in tried]
        if not left:
            return None
        self._turn += 1
        awake = [manager for manager in left if manager.is_awake(now)]
        if awake:
            return awake[self._turn % len(awake)]
        return min(left, key=lambda manager: (manager.silent_since is not None, manager.down_until))

    def drop_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        for manager in self._line:
            manager.drop_idle(now)

    def close(self) -> None:
        for manager in self._line:
            manager.close()
