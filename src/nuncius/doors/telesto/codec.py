"""Encode and decode Telesto's two framings. No I/O.

The first three bytes of a connection show its framing. Both begin with two bytes of length, followed by the
method id, which is below 0x80. The report gives it two bytes, so the first of them is 0; the authors'
programs give it one, which is never 0.

A length is a signed int16, so a packet has at most 32,767 bytes. The authors' client empties its buffer of
32,768 bytes only when that is three quarters full, and fails on an answer that does not fit into the rest; so
in its dialect no answer is larger than 8,192.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from nuncius.doors.telesto.fields_codec import RecordShape, shape_of
from nuncius.doors.telesto.table import PACKETS, Answer, Dialect, Packet, Record, Request

DETECTION_BYTES = 3


class _Framing(msgspec.Struct, frozen=True):
    header: struct.Struct  # length, method id, packet id
    uncounted: int  # bytes at the beginning that the length does not count
    max_request: int
    max_answer: int


_FRAMINGS = {
    Dialect.REPORT: _Framing(struct.Struct(">hhi"), 0, 32767, 32767),
    Dialect.DEPLOYED: _Framing(struct.Struct(">hbi"), 2, 32767 + 2, 8192),
}
_length = struct.Struct(">h")


class UnreadablePacket(msgspec.Struct, frozen=True):
    """A complete but invalid packet; the next one may be valid."""

    packet_id: int
    reason: str


class Broken(msgspec.Struct, frozen=True):
    """The start of the next packet cannot be found: nothing more can be read."""

    reason: str
    packet_id: int = 0


Event = Packet | UnreadablePacket | Broken


class DoesNotFit(ValueError):
    """A packet larger than its framing can carry, or a value that its field cannot hold."""


def detect(first: bytes) -> Dialect:
    """Return the dialect of a connection that begins with these bytes; three are enough."""
    return Dialect.REPORT if first[2] == 0 else Dialect.DEPLOYED


class Codec:
    """One side of a connection. It receives packets of one direction and sends those of the other."""

    def __init__(self, dialect: Dialect, receives: type[Request] | type[Answer] = Request) -> None:
        self.dialect = dialect
        self._framing = _FRAMINGS[dialect]
        self._known = _BY_METHOD[dialect, receives]
        self._outgoing = _OUTGOING[dialect]
        self._buffer = b""
        self._broken = False

    # From bytes

    @property
    def incomplete(self) -> int:
        """Bytes of an incomplete packet."""
        return len(self._buffer)

    def receive(self, data: bytes) -> list[Event]:
        """Return the complete packets, in order. After a Broken there are no more."""
        if self._broken:
            return []
        if self._buffer:
            data = self._buffer + data
        events: list[Event] = []
        framing = self._framing
        at, end = 0, len(data)
        while end - at >= 2:
            (length,) = _length.unpack_from(data, at)
            size = length + framing.uncounted
            if size < framing.header.size:
                self._broken = True
                events.append(Broken(f"no packet has a length of {length}"))
                break
            if end - at < size:
                break
            events.append(self._decode(data[at : at + size]))
            at += size
        self._buffer = b"" if self._broken else data[at:]
        return events

    def _decode(self, frame: bytes) -> Event:
        header = self._framing.header
        _, method, packet_id = header.unpack_from(frame)
        shape = self._known.get(method)
        if shape is None:
            return UnreadablePacket(packet_id, self._strange(method))
        try:
            values, at = shape.values(frame, header.size)
        except struct.error:
            return UnreadablePacket(packet_id, f"{shape.record.__name__}: it ends too early")
        except ValueError as error:
            return UnreadablePacket(packet_id, f"{shape.record.__name__}: {error}")
        if at != len(frame):
            return UnreadablePacket(packet_id, f"{shape.record.__name__}: {len(frame) - at} bytes too many")
        packet: Packet = shape.record(packet_id, *values)
        return packet

    def _strange(self, method: int) -> str:
        for packet in PACKETS:
            if packet.METHODS.of(self.dialect) == method:
                return f"{packet.__name__} ({method:#04x}) does not go in this direction"
        return f"there is no method {method:#04x}"

    # To bytes

    def encode(self, packet: Packet) -> bytes:
        """Encode a packet. Raise DoesNotFit if it is too large, so that the stream stays intact."""
        kind = type(packet)
        write, method, most = self._outgoing[kind]
        parts = [b""]
        try:
            write(parts, packet)
            header = self._framing.header
            size = header.size + sum(map(len, parts))
            if size > most:
                raise DoesNotFit(f"a {kind.__name__} of {size} bytes is too large")
            parts[0] = header.pack(size - self._framing.uncounted, method, packet.packet_id)
        except (struct.error, UnicodeError) as error:
            raise DoesNotFit(f"{kind.__name__}: {error}") from error
        return b"".join(parts)

    def fitting(self, items: Sequence[Record]) -> int:
        """Return how many of these items, from the first on, fit into an answer that lists them."""
        room = self._framing.max_answer - self._framing.header.size - 4
        for number, item in enumerate(items):
            parts: list[bytes] = []
            try:
                shape_of(type(item), self.dialect).write(parts, item)
            except (struct.error, UnicodeError):
                return number
            room -= sum(map(len, parts))
            if room < 0:
                return number
        return len(items)


_SHAPES: dict[Dialect, dict[type[Packet], RecordShape]] = {
    dialect: {packet: shape_of(packet, dialect) for packet in PACKETS} for dialect in Dialect
}
# Function that writes each packet, its method id, and its largest size.
_OUTGOING: dict[Dialect, dict[type[Packet], tuple[Callable[[list[bytes], Any], None], int, int]]] = {
    dialect: {
        packet: (
            shape.write,
            packet.METHODS.of(dialect),
            _FRAMINGS[dialect].max_answer if issubclass(packet, Answer) else _FRAMINGS[dialect].max_request,
        )
        for packet, shape in shapes.items()
    }
    for dialect, shapes in _SHAPES.items()
}
_BY_METHOD: dict[tuple[Dialect, type[Packet]], dict[int, RecordShape]] = {
    (dialect, direction): {
        packet.METHODS.of(dialect): _SHAPES[dialect][packet]
        for packet in PACKETS
        if issubclass(packet, direction)
    }
    for dialect in Dialect
    for direction in (Request, Answer)
}
