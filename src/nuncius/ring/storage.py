"""The storage layer as its users see it: one large key-value store, wherever a key really is.

A key looks like "user:what". Everything before the first colon decides where it lives, so all keys of a user
are together. A key has a value, or a list of items of which each is there once, or both: they do not meet.
Strings are any bytes; those that are not UTF-8 are carried as Python's surrogate escapes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class Status(IntEnum):
    """The storage server's answers, with the numbers of its protocol."""

    OK = 0
    KEY_NOT_FOUND = 1
    ITEM_NOT_FOUND = 2
    PUT_FAILED = 3
    ITEM_EXISTS = 4


class StorageError(Exception):
    """Base of what the storage layer raises itself."""


class Refused(StorageError):
    """The key or the value is not allowed; nothing was stored."""


class NoAnswer(StorageError):
    """The owner of a key cannot be reached, or went away before it answered: what was asked of it may or may
    not have happened."""


@dataclass(frozen=True, slots=True)
class Post:
    """What a post needs, all or nothing: a new key, its mention in a list, and an entry of topic `tribbles`.

    Both keys have the same part before the colon. A post that is repeated (its key is there already) changes
    nothing."""

    key: str
    value: str
    list_key: str
    item: str
    body: bytes
    """The body of the entry in topic `tribbles`; its key is the part before the colon."""


class Storage(Protocol):
    async def get(self, key: str) -> str | None:
        """The value, or None if there is none."""

    async def put(self, key: str, value: str) -> None: ...

    async def raise_to(self, key: str, number: int) -> None:
        """Puts a number (from 0 on), unless one as large is there: however late this is done, it never takes
        back what others have put meanwhile."""

    async def get_list(self, key: str) -> list[str]:
        """The items in the order in which they were added; empty also when there is no such list."""

    async def append(self, key: str, item: str) -> Status:
        """OK or ITEM_EXISTS. A list that is not there is made."""

    async def remove(self, key: str, item: str) -> Status:
        """OK, KEY_NOT_FOUND or ITEM_NOT_FOUND."""

    async def get_many(self, keys: Sequence[str]) -> list[str | None]:
        """The values of many keys, with few calls."""

    async def get_lists(self, keys: Sequence[str]) -> list[list[str]]:
        """The lists of many keys, with few calls."""

    async def put_and_publish(self, post: Post) -> int:
        """Answers how many items the list has now."""
