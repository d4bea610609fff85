"""The managers behind a balancer: which there are, which answer, and connections to them that are kept."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nuncius.cluster.balancer.upstream import Upstream

REST_SECONDS = 1.0  # before one that did not answer is tried again
IDLE_SECONDS = 3.0  # a manager closes connections that idle for longer; we do it first

WRITES = "Write Manager"
READS = "Read Manager"
_READ_PATHS = (b"/consumer/", b"/size")
_SUBSCRIPTIONS = b"/subscriptions"  # of topics, in the modern API
_V1 = b"/v1/"


def kind_of(method: bytes, path: bytes) -> str:
    """Who answers: what is about topics and producers the write manager, what is about consumers a read
    manager; of the modern API whatever only reads goes to a read manager as well."""
    if path.startswith(_READ_PATHS) or (path.startswith(_V1) and _SUBSCRIPTIONS in path):
        return READS
    if path.startswith((b"/topics", b"/producer/", b"/broker", b"/partition")):
        return WRITES
    return READS if method in (b"GET", b"HEAD", b"OPTIONS") else WRITES


def is_modern(path: bytes) -> bool:
    """Whether failures are told in the way of /v1 rather than of the report."""
    return path.startswith(_V1)


@dataclass(slots=True, eq=False)
class Manager:
    host: str
    port: int
    idle: list["Upstream"] = field(default_factory=list)
    down_until: float = 0.0
    heard_at: float = 0.0
    silent_since: float | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def is_awake(self, now: float) -> bool:
        return self.down_until <= now and self.silent_since is None

    def take_idle(self, now: float) -> "Upstream | None":
        """A connection that is likely to be open still, the one used last."""
        while self.idle:
            upstream = self.idle.pop()
            if upstream.is_usable(now):
                return upstream
            upstream.close()
        return None

    def drop_idle(self, now: float) -> None:
        old = [each for each in self.idle if not each.is_usable(now)]
        for upstream in old:
            self.idle.remove(upstream)
            upstream.close()

    def rest(self) -> None:
        """It did not answer: others do, for a while."""
        self.down_until = asyncio.get_running_loop().time() + REST_SECONDS

    def close(self) -> None:
        for upstream in self.idle:
            upstream.close()
        self.idle.clear()


class Managers:
    """Those of one kind, in turn."""

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
        """Those that do not even say that they are alive."""
        return [manager for manager in self._line if manager.silent_since is not None]

    def __contains__(self, manager: Manager) -> bool:
        return manager in self._line

    def has_other(self, tried: Iterable[Manager]) -> bool:
        """Whether there is a manager that was not tried, and of which nothing bad is known."""
        now = asyncio.get_running_loop().time()
        return any(manager.is_awake(now) for manager in self._line if manager not in tried)

    def next(self, tried: Iterable[Manager]) -> Manager | None:
        """The one whose turn it is, of those that were not tried for this request. When all are resting or
        silent, the one that has rested longest: it may be back."""
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
