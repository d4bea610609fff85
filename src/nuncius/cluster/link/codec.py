"""The messages between the nodes of a cluster, as bytes.

A frame is four bytes of length and a MessagePack array. All requests, or answers, of one turn of the loop
share a frame, so that under load hundreds share its cost.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

from nuncius.broker.errors import (
    BrokerError,
    CallFailed,
    InvalidInput,
    NoSuchTopic,
    OutcomeUnknown,
    StoreUnavailable,
)
from nuncius.broker.model import FetchedEntries

MAX_FRAME = 512 << 20
_length = struct.Struct(">I")


class Moved(BrokerError):
    """The partition is now served by another broker; nothing was stored."""


class Send(msgspec.Struct, array_like=True, gc=False):
    """Entries to be stored. `partition` 0 leaves the choice to the broker; `publisher_id` is its number in
    the common store, 0 if only its name is known. `store_id` says in which store."""

    id: int
    store_id: int
    topic_id: int
    topic: str
    partition: int
    bodies: list[bytes]
    keys: list[str | None] | None
    headers: list[str | None] | None
    publisher_id: int
    publisher: str
    count: int


class Look(msgspec.Struct, array_like=True, gc=False):
    """Entries to be read from a partition in the broker's own store."""

    id: int
    partition_id: int
    position: int
    limit: int


class LinkRequests(msgspec.Struct, array_like=True, gc=False):
    sends: list[Send]
    looks: list[Look]


class LinkSent(msgspec.Struct, array_like=True, gc=False):
    id: int
    partition: int
    offset: int
    skipped: int
    scattered: list[tuple[int, int]] | None


class LinkFound(msgspec.Struct, array_like=True, gc=False):
    """Entries that were read; None if there are none yet."""

    id: int
    entries: FetchedEntries | None


class LinkFailed(msgspec.Struct, array_like=True, gc=False):
    id: int
    kind: str
    text: str


class LinkAnswers(msgspec.Struct, array_like=True, gc=False):
    sent: list[LinkSent]
    found: list[LinkFound]
    failed: list[LinkFailed]


_KINDS: dict[str, type[Exception]] = {
    "moved": Moved,
    "invalid": InvalidInput,
    "topic": NoSuchTopic,
    "unavailable": StoreUnavailable,
    "unknown": OutcomeUnknown,
    "failed": CallFailed,
}


def failure(number: int, error: Exception) -> LinkFailed:
    """Convert an exception for the other node. An unknown exception means that the outcome is unknown."""
    for kind, cls in _KINDS.items():
        if isinstance(error, cls):
            return LinkFailed(number, kind, str(error))
    return LinkFailed(number, "unknown", repr(error))


def error_of(failed: LinkFailed) -> Exception:
    return _KINDS.get(failed.kind, OutcomeUnknown)(failed.text)


_encoder = msgspec.msgpack.Encoder()


def encode(message: LinkRequests | LinkAnswers) -> bytes:
    frame = _encoder.encode(message)
    return _length.pack(len(frame)) + frame


M = TypeVar("M", LinkRequests, LinkAnswers)


class LinkDecoder(Generic[M]):
    """Decodes frames from chunks of bytes. Raises ValueError for invalid input."""

    def __init__(self, kind: type[M]) -> None:
        self._decode: Callable[[memoryview], M] = msgspec.msgpack.Decoder(kind).decode
        self._buffer = bytearray()
        self._needed = 4

    @property
    def incomplete(self) -> int:
        """The number of bytes of an incomplete frame."""
        return len(self._buffer)

    def receive(self, data: bytes) -> Iterator[M]:
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return
            data = bytes(self._buffer)
        at, end = 0, len(data)
        self._needed = 4
        while end - at >= 4:
            (length,) = _length.unpack_from(data, at)
            if length > MAX_FRAME:
                raise ValueError(f"a frame of {length} bytes")
            if end - at - 4 < length:
                self._needed = 4 + length
                break
            at += 4 + length
            yield self._decode(memoryview(data)[at - length : at])
        self._buffer = bytearray(data[at:])
