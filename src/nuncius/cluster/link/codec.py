"""What nodes of a cluster say to each other, as bytes.

A frame is four bytes of length and a MessagePack array. Requests and answers travel in piles: whatever came
up in one turn of the loop is one frame, so that under load the price of a frame is shared by hundreds.
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
from nuncius.broker.model import Entries

MAX_FRAME = 512 << 20
_length = struct.Struct(">I")


class Moved(BrokerError):
    """The partition is served elsewhere by now; nothing was stored."""


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
    """Entries to be read, of a partition in the broker's own store."""

    id: int
    partition_id: int
    position: int
    limit: int


class Requests(msgspec.Struct, array_like=True, gc=False):
    sends: list[Send]
    looks: list[Look]


class Sent(msgspec.Struct, array_like=True, gc=False):
    id: int
    partition: int
    offset: int
    skipped: int
    scattered: list[tuple[int, int]] | None


class Found(msgspec.Struct, array_like=True, gc=False):
    """`entries` is None where there is nothing yet."""

    id: int
    entries: Entries | None


class Failed(msgspec.Struct, array_like=True, gc=False):
    id: int
    kind: str
    text: str


class Answers(msgspec.Struct, array_like=True, gc=False):
    sent: list[Sent]
    found: list[Found]
    failed: list[Failed]


_KINDS: dict[str, type[Exception]] = {
    "moved": Moved,
    "invalid": InvalidInput,
    "topic": NoSuchTopic,
    "unavailable": StoreUnavailable,
    "unknown": OutcomeUnknown,
    "failed": CallFailed,
}


def failure(number: int, error: Exception) -> Failed:
    """An error as the other node is told; what is none of ours may or may not have stored something."""
    for kind, cls in _KINDS.items():
        if isinstance(error, cls):
            return Failed(number, kind, str(error))
    return Failed(number, "unknown", repr(error))


def error_of(failed: Failed) -> Exception:
    return _KINDS.get(failed.kind, OutcomeUnknown)(failed.text)


_encoder = msgspec.msgpack.Encoder()


def encode(message: Requests | Answers) -> bytes:
    frame = _encoder.encode(message)
    return _length.pack(len(frame)) + frame


M = TypeVar("M", Requests, Answers)


class Decoder(Generic[M]):
    """Frames out of bytes as they come. Raises ValueError when they make no sense."""

    def __init__(self, kind: type[M]) -> None:
        self._decode: Callable[[memoryview], M] = msgspec.msgpack.Decoder(kind).decode
        self._buffer = bytearray()
        self._needed = 4

    @property
    def incomplete(self) -> int:
        """Bytes of a frame whose end has not come yet."""
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


def requests() -> Decoder[Requests]:
    return Decoder(Requests)


def answers() -> Decoder[Answers]:
    return Decoder(Answers)
