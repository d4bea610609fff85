"""Requests between nodes of the ring. The listeners define how they travel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from nuncius.ring.cache import Value
from nuncius.ring.ring import HashRange, NodePlace, Ring
from nuncius.ring.storage import OwnerSilent
from nuncius.store.calls.keys import APPEND, POST, PUT, RAISE, REMOVE, KeyRow, Mention


class Unreached(OwnerSilent):
    """The node could not be asked at all; nothing has happened."""


@dataclass(frozen=True, slots=True)
class FoundKey:
    """An owner's answer for a key: its value or list, or None, and for how long that may be kept."""

    value: Value | None
    lease_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Registered:
    ready: bool
    places: Sequence[NodePlace] = ()
    version: int = 1


class RingPeer(Protocol):
    async def read(
        self, lists: bool, keys: Sequence[str], wants: Sequence[bool], client: str
    ) -> Sequence[FoundKey]:
        """Return values or lists, with a lease for `client` where one is wanted and granted."""

    async def write(self, kind: int, key: str, item: str, mention: Mention | None) -> int:
        """Apply a change. The result is that of `change_keys`."""

    async def revoke(self, key: str) -> bool:
        """Drop a key from the cache. True means that nothing of it is kept."""

    async def register(self, places: Sequence[NodePlace]) -> Registered: ...

    async def ring(self) -> Ring | None:
        """Return the ring that the node is in, or None."""

    async def join(self, places: Sequence[NodePlace]) -> Ring:
        """Ask the master to admit a node to a running ring. Returns when it is admitted."""

    async def hand_over(self, ring: Ring) -> None:
        """Change to this ring: the node gives away the keys that it no longer owns."""

    async def take(self, forget: Sequence[HashRange], rows: Sequence[KeyRow]) -> None:
        """Take over keys that the node owns from now on."""


Connect = Callable[[str], RingPeer]
"""Returns the peer at an address."""

__all__ = [
    "APPEND",
    "POST",
    "PUT",
    "RAISE",
    "REMOVE",
    "Connect",
    "FoundKey",
    "KeyRow",
    "Mention",
    "Registered",
    "RingPeer",
    "Unreached",
]
