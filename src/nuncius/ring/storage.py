"""The storage layer's interface: one large key-value store, independent of where a key is stored.

A key looks like "user:what". The part before the first colon determines the node, so all keys of a user are
together. A key has a value, or a list of distinct items, or both, independently. Strings are any bytes; bytes
that are not UTF-8 are carried as Python's surrogate escapes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class KeyStatus(IntEnum):
    """The storage server's answers, with the numbers of its protocol."""

    OK = 0
    KEY_NOT_FOUND = 1
    ITEM_NOT_FOUND = 2
    PUT_FAILED = 3
    ITEM_EXISTS = 4


class StorageError(Exception):
    """Base of the storage layer's own errors."""


class KeyRefused(StorageError):
    """The key or the value is not allowed; nothing was stored."""


class OwnerSilent(StorageError):
    """The owner of a key cannot be reached, or stopped before it answered: the operation may or may not have
    happened."""


@dataclass(frozen=True, slots=True)
class Post:
    """The parts of a post, stored all or none: a new key, its mention in a list, and an entry of topic
    `tribbles`.

    Both keys have the same part before the colon. A repeated post (its key exists already) changes nothing.
    """

    key: str
    value: str
    list_key: str
    item: str
    body: bytes
    """The body of the entry in topic `tribbles`; its key is the part before the colon."""


class Storage(Protocol):
    async def get(self, key: str) -> str | None:
        """Return the value, or None if there is none."""

    async def put(self, key: str, value: str) -> None: ...

    async def raise_to(self, key: str, number: int) -> None:
        """Put a number (from 0 on), unless the stored one is as large. So a late call never undoes another
        one."""

    async def get_list(self, key: str) -> list[str]:
        """Return the items in the order in which they were added; empty also if the list does not exist."""

    async def append(self, key: str, item: str) -> KeyStatus:
        """Append an item. Return OK or ITEM_EXISTS. Creates the list if it does not exist."""

    async def remove(self, key: str, item: str) -> KeyStatus:
        """Remove an item. Return OK, KEY_NOT_FOUND or ITEM_NOT_FOUND."""

    async def get_many(self, keys: Sequence[str]) -> list[str | None]:
        """Return the values of many keys, with few calls."""

    async def get_lists(self, keys: Sequence[str]) -> list[list[str]]:
        """Return the lists of many keys, with few calls."""

    async def put_and_publish(self, post: Post) -> int:
        """Store a post. Return the new number of items in the list."""
