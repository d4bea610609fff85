"""The basic encodings of gob, Go's encoding of values: numbers, strings, and the descriptions of types.

A stream consists of messages: a length, a type's id, and a value of that type. A negative id announces the
description of the type with the opposite id. Types are described in terms of a few built-in ones.
"""

import struct
from dataclasses import dataclass

BOOL, INT, UINT, FLOAT, BYTES, STRING, COMPLEX, INTERFACE = range(1, 9)
FIRST_ID = 65  # first id of types that are not built in
MAX_FIELDS = 1000


class GobError(Exception):
    """The bytes are not a gob stream, or exceed a limit; the rest cannot be decoded."""


class Mismatch(Exception):
    """A value is well-formed but not of the expected type."""


@dataclass(frozen=True, slots=True)
class StructType:
    name: str
    fields: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class SliceType:
    """Slices and arrays: a count, then the elements."""

    element: int


@dataclass(frozen=True, slots=True)
class MapType:
    key: int
    element: int


@dataclass(frozen=True, slots=True)
class OpaqueType:
    """A type with its own encoding: opaque bytes."""


WireType = StructType | SliceType | MapType | OpaqueType


def read_uint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends."""
    first = data[at]
    if first < 128:
        return first, at + 1
    count = 256 - first
    end = at + 1 + count
    if count > 8 or end > len(data):
        raise GobError("gob: encoded unsigned integer out of range")
    return int.from_bytes(data[at + 1 : end], "big"), end


def read_int(data: bytes, at: int) -> tuple[int, int]:
    value, at = read_uint(data, at)
    return (~(value >> 1) if value & 1 else value >> 1), at


def read_float(data: bytes, at: int) -> tuple[float, int]:
    value, at = read_uint(data, at)
    number: float = struct.unpack("<d", value.to_bytes(8, "big"))[0]
    return number, at


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_uint(data, at)
    end = at + length
    if end > len(data):
        raise GobError("gob: string is longer than its message")
    return data[at:end], end


def read_string(data: bytes, at: int) -> tuple[str, int]:
    text, at = read_bytes(data, at)
    return text.decode("utf-8", "surrogateescape"), at


def read_count(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of elements. Raise GobError if the message cannot hold them: each takes at least a
    byte."""
    count, at = read_uint(data, at)
    if count > len(data) - at:
        raise GobError("gob: more elements than their message can hold")
    return count, at


def write_uint(out: bytearray, value: int) -> None:
    if value < 128:
        out.append(value)
    else:
        size = (value.bit_length() + 7) // 8
        out.append(256 - size)
        out += value.to_bytes(size, "big")


def write_int(out: bytearray, value: int) -> None:
    write_uint(out, (~value << 1) | 1 if value < 0 else value << 1)


def write_float(out: bytearray, value: float) -> None:
    write_uint(out, int.from_bytes(struct.pack("<d", value), "big"))


def write_bytes(out: bytearray, value: bytes) -> None:
    write_uint(out, len(value))
    out += value


def write_string(out: bytearray, value: str) -> None:
    write_bytes(out, value.encode("utf-8", "surrogateescape"))


def message(type_id: int, value: bytes | bytearray) -> bytes:
    """Return a complete message of a stream."""
    inner = bytearray()
    write_int(inner, type_id)
    out = bytearray()
    write_uint(out, len(inner) + len(value))
    return bytes(out + inner + value)


def read_type(data: bytes, at: int) -> tuple[WireType, int]:
    """Read the description of a type, a value of Go's `wireType`: one of its fields is set."""
    found: WireType | None = None
    field = -1
    while True:
        delta, at = read_uint(data, at)
        if delta == 0:
            break
        field += delta
        if field == 2:
            found, at = _read_struct(data, at)
        elif 0 <= field <= 6:
            numbers, at = _read_numbers(data, at)
            if field in (0, 1):
                found = SliceType(numbers.get(1, 0))
            elif field == 3:
                found = MapType(numbers.get(1, 0), numbers.get(2, 0))
            else:
                found = OpaqueType()
        else:
            raise GobError("gob: bad type description")
    if found is None:
        raise GobError("gob: empty type description")
    return found, at


def _read_common(data: bytes, at: int) -> tuple[str, int]:
    """Read a `CommonType` and return its name; its id is known from the message."""
    name = ""
    field = -1
    while True:
        delta, at = read_uint(data, at)
        if delta == 0:
            return name, at
        field += delta
        if field == 0:
            name, at = read_string(data, at)
        else:
            _, at = read_int(data, at)


def _read_numbers(data: bytes, at: int) -> tuple[dict[int, int], int]:
    """Read a struct of a `CommonType` and numbers. Return the numbers by field."""
    numbers: dict[int, int] = {}
    field = -1
    while True:
        delta, at = read_uint(data, at)
        if delta == 0:
            return numbers, at
        field += delta
        if field == 0:
            _, at = _read_common(data, at)
        else:
            numbers[field], at = read_int(data, at)


def _read_struct(data: bytes, at: int) -> tuple[StructType, int]:
    name = ""
    fields: list[tuple[str, int]] = []
    field = -1
    while True:
        delta, at = read_uint(data, at)
        if delta == 0:
            return StructType(name, tuple(fields)), at
        field += delta
        if field == 0:
            name, at = _read_common(data, at)
        else:
            count, at = read_count(data, at)
            if count > MAX_FIELDS:
                raise GobError(f"gob: a struct has at most {MAX_FIELDS} fields")
            for _ in range(count):
                # A `fieldType` is encoded like a `CommonType`: a name, an id.
                each, at = _read_field(data, at)
                fields.append(each)


def _read_field(data: bytes, at: int) -> tuple[tuple[str, int], int]:
    name, type_id = "", 0
    field = -1
    while True:
        delta, at = read_uint(data, at)
        if delta == 0:
            return (name, type_id), at
        field += delta
        if field == 0:
            name, at = read_string(data, at)
        else:
            type_id, at = read_int(data, at)
