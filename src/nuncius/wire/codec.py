"""Encode and decode packets of the native protocol. No I/O.

A connection opens with four bytes, MAGIC. Telesto's own framings begin with a positive length of two bytes,
so their first byte is below 0x80; that of MAGIC is not. Frames follow in both directions: the length of the
rest as four bytes, big-endian, and a packet of `packets`.
"""

import struct
from typing import Any, Union

import msgspec

from nuncius.wire.packets import ANSWERS, REQUESTS, Packet

MAGIC = b"\xf5NU\x01"
MAX_FRAME = 32 << 20
MAX_ANSWER = (1 << 32) - 1

_length = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()


class ProtocolError(Exception):
    """The other side does not speak this protocol (any more); the connection must end. `before` are the
    packets that were complete before."""

    def __init__(self, reason: str, before: list[Any]) -> None:
        super().__init__(reason)
        self.before = before


class Unreadable(msgspec.Struct, frozen=True):
    """A complete frame that is no known packet; the next one may be. `request` is 0 if it has none."""

    request: int
    reason: str


def encode(packet: Packet) -> bytes:
    """Encode a packet as a frame."""
    payload = _encoder.encode(packet)
    return _length.pack(len(payload)) + payload


class PacketDecoder:
    """Decoder of packets of one direction, from bytes in pieces of any size."""

    def __init__(self, packets: tuple[type[Packet], ...], max_frame: int = MAX_FRAME) -> None:
        self._decode = msgspec.msgpack.Decoder(Union[packets]).decode  # noqa: UP007  (made at run time)
        self._max_frame = max_frame
        self._buffer = bytearray()
        self._needed = 4  # bytes in the buffer that the next packet needs
        self.incomplete = 0
        """Bytes of an incomplete packet."""

    def clear(self) -> None:
        """Drop an incomplete packet."""
        self._buffer.clear()

    def receive(self, data: bytes) -> list[Any]:
        """Return the packets that these bytes complete, in order, and Unreadable for invalid ones. Raise
        ProtocolError if the start of the next packet cannot be found."""
        if self._buffer:
            self._buffer += data
            self.incomplete = len(self._buffer)
            if self.incomplete < self._needed:
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        packets: list[Any] = []
        self._needed = 4
        at, end = 0, len(data)
        while end - at >= 4:
            (length,) = _length.unpack_from(data, at)
            if length > self._max_frame:
                reason = f"a frame of {length} bytes; the limit is {self._max_frame}"
                raise ProtocolError(reason, packets)
            if end - at - 4 < length:
                self._needed = 4 + length
                break
            frame = data[at + 4 : at + 4 + length]
            at += 4 + length
            try:
                packets.append(self._decode(frame))
            except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError) as error:
                packets.append(Unreadable(_request_of(frame), str(error)[:200]))
        self.incomplete = end - at
        if at < end:
            self._buffer += data[at:]
        return packets


def requests(max_frame: int = MAX_FRAME) -> PacketDecoder:
    """Return a decoder for the node's side."""
    return PacketDecoder(REQUESTS, max_frame)


def answers() -> PacketDecoder:
    """Return a decoder for the client's side. The client requested the answers, so they may be as long as a
    frame can be."""
    return PacketDecoder(ANSWERS, MAX_ANSWER)


def _request_of(frame: bytes) -> int:
    """Return the request id of a packet that could not be decoded, for the error to its sender."""
    try:
        fields = msgspec.msgpack.decode(frame)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return 0
    if isinstance(fields, list) and len(fields) > 1 and type(fields[1]) is int:
        return fields[1]
    return 0
