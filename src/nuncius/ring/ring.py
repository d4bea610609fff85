"""The ring: the assignment of keys to nodes.

Every node has one or more ids on a circle of 32 bits. A key belongs to its successor: the first id at or
after the hash of the key's part before the first colon, or the lowest id if there is none.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

SIZE = 1 << 32
_OFFSET = 2166136261
_PRIME = 16777619


def fnv1(data: bytes) -> int:
    """Return the 32-bit FNV-1 hash: multiply, then xor."""
    hashed = _OFFSET
    for byte in data:
        hashed = ((hashed * _PRIME) & 0xFFFFFFFF) ^ byte
    return hashed


def group_of(key: str) -> str:
    """Return the part of a key that determines its owner."""
    return key.partition(":")[0]


def hash_of(key: str) -> int:
    return _hash_of_group(key.partition(":")[0])


@lru_cache(maxsize=100_000)
def _hash_of_group(group: str) -> int:
    return fnv1(group.encode("utf-8", "surrogateescape"))


def more_ids(node_id: int, count: int) -> list[int]:
    """Return the ids of a node that has several: its own, and others derived from it."""
    digests = (hashlib.sha256(f"{node_id}/{n}".encode()).digest() for n in range(1, count))
    return [node_id, *(int.from_bytes(digest[:4], "big") for digest in digests)]


@dataclass(frozen=True, slots=True, order=True)
class NodePlace:
    """One id of a node."""

    node_id: int
    host_port: str


@dataclass(frozen=True, slots=True)
class HashRange:
    """Hashes from `first` to `last`, both included."""

    first: int
    last: int

    def __contains__(self, hashed: int) -> bool:
        return self.first <= hashed <= self.last


class Ring:
    def __init__(self, places: Iterable[NodePlace], version: int = 1) -> None:
        by_id: dict[int, NodePlace] = {}
        for place in places:
            by_id.setdefault(place.node_id, place)
        self.places: Sequence[NodePlace] = sorted(by_id.values())
        self.version = version
        self.ids = [place.node_id for place in self.places]
        self._owners = [place.host_port for place in self.places]

    def owner_of(self, hashed: int) -> str:
        """Return the address of the node that owns keys with this hash."""
        at = bisect_left(self.ids, hashed)
        return self._owners[at if at < len(self.ids) else 0]

    def owner(self, key: str) -> str:
        return self.owner_of(hash_of(key))

    @property
    def nodes(self) -> list[str]:
        """The addresses of all nodes, each once."""
        return list(dict.fromkeys(self._owners))

    def with_places(self, places: Iterable[NodePlace]) -> "Ring":
        """Return the next version of the ring, with more ids. Ids that are taken keep their node."""
        return Ring([*self.places, *places], self.version + 1)

    def moved(self, new: "Ring", host_port: str) -> list[tuple[HashRange, str]]:
        """Return the ranges that a node of this ring must hand over to reach the new one, with their
        targets."""
        cuts = sorted({id_ + 1 for id_ in (*self.ids, *new.ids)} | {0, SIZE})
        moves: list[tuple[HashRange, str]] = []
        for first, end in pairwise(cuts):
            if end > SIZE:
                break
            target = new.owner_of(first)
            if self.owner_of(first) == host_port != target:
                moves.append((HashRange(first, end - 1), target))
        return moves
