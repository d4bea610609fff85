"""How the fields of a record become bytes and come back, worked out once from the annotations of the table.

Numbers that stand side by side are packed together: a message is one call for its seven numbers and one for
its text.
"""

import functools
import operator
import struct
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from nuncius.doors.telesto.telesto_table import Dialect, Number, Only, Packet, Record, Single

MALFORMED = (struct.error, UnicodeError, ValueError)

Read = Callable[[bytes, int], tuple[Any, int]]  # bytes and a place in them: a value and the place after it
Write = Callable[[list[bytes], Any], None]

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")


class Field(NamedTuple):
    """A field as one dialect sends it; `kind` is a Number, `str`, a Record class or `list[kind]`."""

    name: str
    kind: Any
    present: bool
    default: Any


def fields_of(record: type[Record], dialect: Dialect) -> list[Field]:
    """The fields of a record's payload: a packet's id belongs to the frame, not to it."""
    hints = typing.get_type_hints(record, include_extras=True)
    fields = []
    for info in msgspec.structs.fields(record):
        if issubclass(record, Packet) and info.name == "packet_id":
            continue
        kind, marks = _kind(hints[info.name])
        missing = any(isinstance(mark, Only) and mark.dialect is not dialect for mark in marks)
        if any(isinstance(mark, Single) and mark.dialect is dialect for mark in marks):
            kind = Alone(kind.item)
        fields.append(Field(info.name, kind, not missing, "" if kind is str else 0))
    return fields


class ListOf(NamedTuple):
    item: Any


class Alone(NamedTuple):
    """A list that is always one item, sent without a count."""

    item: Any


def _kind(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    marks: tuple[Any, ...] = ()
    if typing.get_origin(hint) is typing.Annotated:
        hint, *rest = typing.get_args(hint)
        marks = tuple(rest)
    for mark in marks:
        if isinstance(mark, Number):
            return mark, marks
    if typing.get_origin(hint) is list:
        return ListOf(_kind(typing.get_args(hint)[0])[0]), marks
    return hint, marks


class Shape:
    """A record as one dialect sends it."""

    def __init__(self, record: type[Record], dialect: Dialect) -> None:
        self.record: Callable[..., Any] = record
        self._steps: list[tuple[int, Read]] = []  # how many values a step reads, 1 or more
        self._writers: list[Write] = []
        run: list[Field] = []
        for field in fields_of(record, dialect):
            if field.present and isinstance(field.kind, Number):
                run.append(field)
                continue
            self._add_numbers(run)
            run = []
            if field.present:
                read, write = _codec(field.kind, dialect)
                self._steps.append((1, read))
                self._writers.append(_from(field.name, write))
            else:
                self._steps.append((1, _always(field.default)))
        self._add_numbers(run)

    def _add_numbers(self, run: list[Field]) -> None:
        if not run:
            return
        numbers = struct.Struct(">" + "".join(field.kind.code for field in run))
        names = [field.name for field in run]
        self._steps.append((len(run), _numbers_reader(numbers)))
        self._writers.append(_numbers_writer(numbers, names))

    def values(self, data: bytes, at: int) -> tuple[list[Any], int]:
        """The values of the fields that begin there. Raises one of MALFORMED."""
        values: list[Any] = []
        for count, read in self._steps:
            value, at = read(data, at)
            if count == 1:
                values.append(value)
            else:
                values += value
        return values, at

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        values, at = self.values(data, at)
        return self.record(*values), at

    def write(self, parts: list[bytes], value: Any) -> None:
        for write in self._writers:
            write(parts, value)


@functools.cache
def shape_of(record: type[Record], dialect: Dialect) -> Shape:
    return Shape(record, dialect)


def _codec(kind: Any, dialect: Dialect) -> tuple[Read, Write]:
    if kind is str:
        return _read_text, _write_text
    if isinstance(kind, Number):
        number = struct.Struct(">" + kind.code)
        return _numbers_reader(number), lambda parts, value: parts.append(number.pack(value))
    if isinstance(kind, Alone):
        return _alone(*_codec(kind.item, dialect))
    if isinstance(kind, ListOf):
        return _list(*_codec(kind.item, dialect))
    shape = shape_of(kind, dialect)
    return shape.read, shape.write


def _numbers_reader(numbers: struct.Struct) -> Read:
    size = numbers.size
    several = len(numbers.unpack(bytes(size))) > 1

    def read(data: bytes, at: int) -> tuple[Any, int]:
        values = numbers.unpack_from(data, at)
        return (values if several else values[0]), at + size

    return read


def _numbers_writer(numbers: struct.Struct, names: list[str]) -> Write:
    pick = operator.attrgetter(*names)
    if len(names) == 1:
        return lambda parts, value: parts.append(numbers.pack(pick(value)))
    return lambda parts, value: parts.append(numbers.pack(*pick(value)))


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _int16.unpack_from(data, at)
    at += 2
    if not 0 <= length <= len(data) - at:
        raise ValueError(f"a text of {length} bytes where {len(data) - at} are left")
    return data[at : at + length].decode(), at + length


def _write_text(parts: list[bytes], value: str) -> None:
    raw = value.encode()
    parts.append(_int16.pack(len(raw)))
    parts.append(raw)


def _list(read_item: Read, write_item: Write) -> tuple[Read, Write]:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        (count,) = _int32.unpack_from(data, at)
        at += 4
        if not 0 <= count <= len(data) - at:  # no item is smaller than a byte
            raise ValueError(f"a list of {count} items in {len(data) - at} bytes")
        items = []
        for _ in range(count):
            item, at = read_item(data, at)
            items.append(item)
        return items, at

    def write(parts: list[bytes], value: list[Any]) -> None:
        parts.append(_int32.pack(len(value)))
        for item in value:
            write_item(parts, item)

    return read, write


def _alone(read_item: Read, write_item: Write) -> tuple[Read, Write]:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        item, at = read_item(data, at)
        return [item], at

    def write(parts: list[bytes], value: list[Any]) -> None:
        (item,) = value
        write_item(parts, item)

    return read, write


def _always(value: Any) -> Read:
    return lambda data, at: (value, at)


def _from(name: str, write: Write) -> Write:
    pick = operator.attrgetter(name)
    return lambda parts, value: write(parts, pick(value))
