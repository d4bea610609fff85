"""Statuses, errors and posts of the storage layer: one large key-value store, whichever node has a key.

A key looks like "user:what". The part before the first colon determines the node, so all keys of a user are
together. A key has a value, or a list of distinct items, or both, independently. Strings are any bytes; bytes
that are not UTF-8 are carried as Python's surrogate escapes.
"""

from dataclasses import dataclass
from enum import IntEnum


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
