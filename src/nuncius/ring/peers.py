"""What nodes of the ring ask each other. How it travels is a door's business."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from nuncius.ring.cache import Value
from nuncius.ring.ring import Place, Range, Ring
from nuncius.ring.storage import NoAnswer
from nuncius.store.calls.keys import APPEND, POST, PUT, RAISE, REMOVE, KeyRow, Mention


class Unreached(NoAnswer):
    """The node could not be asked at all; nothing has happened."""


@dataclass(frozen=True, slots=True)
class Found:
    """What an owner says of a key: its value or list, or None, and for how long that may be kept."""

    value: Value | None
    lease_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Registered:
    ready: bool
    places: Sequence[Place] = ()
    version: int = 1


class Peer(Protocol):
    async def read(
        self, lists: bool, keys: Sequence[str], wants: Sequence[bool], client: str
    ) -> Sequence[Found]:
        """Values, or lists; with a lease for `client` where one is wanted and granted."""

    async def write(self, kind: int, key: str, item: str, mention: Mention | None) -> int:
        """A change, answered as by `write_keys`."""

    async def revoke(self, key: str) -> bool:
        """True: the node keeps nothing of that key any more."""

    async def register(self, places: Sequence[Place]) -> Registered: ...

    async def ring(self) -> Ring | None:
        """The ring the node is in; None while it is in none."""

    async def join(self, places: Sequence[Place]) -> Ring:
        """Asks the master to let a node into a running ring; answers when it is in."""

    async def hand_over(self, ring: Ring) -> None:
        """From now on this ring is true: the node gives away what is not its own any more."""

    async def take(self, forget: Sequence[Range], rows: Sequence[KeyRow]) -> None:
        """Keys that are the node's from now on."""


Connect = Callable[[str], Peer]
"""The peer at an address."""

__all__ = [
    "APPEND",
    "POST",
    "PUT",
    "RAISE",
    "REMOVE",
    "Connect",
    "Found",
    "KeyRow",
    "Mention",
    "Peer",
    "Registered",
    "Unreached",
]
