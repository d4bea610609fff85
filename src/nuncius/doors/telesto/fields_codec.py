"""Encode and decode the fields of records, as planned once from the annotations of the table.

Adjacent numbers are packed together, with the length of the text or list that follows. A record within a
record has no bytes of its own: its fields are treated as fields of the outer one.
"""

import functools
import operator
import struct
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from nuncius.doors.telesto.table import Dialect, Number, Only, Packet, Record, Single


class Field(NamedTuple):
    """A field in one dialect; `kind` is a Number, `str`, a Record class or `list[kind]`."""

    name: str
    kind: Any
    present: bool
    default: Any


def fields_of(record: type[Record], dialect: Dialect) -> list[Field]:
    """Return the fields of a record's payload, without a packet's id, which belongs to the frame."""
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
    """A list of exactly one item, sent without a count."""

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


class Tail(NamedTuple):
    """A text or a list, sent after its length."""

    code: str  # struct code of the length
    write: Callable[[Any], tuple[int, bytes]]
    read: Callable[
        [bytes, int, int], tuple[Any, int]
    ]  # bytes, position and length: a value and the next position


class FieldRun(NamedTuple):
    """A run of numbers, and the text or list after them, if any."""

    numbers: struct.Struct  # the last one is the length of the tail
    size: int
    pick: Callable[[Any], tuple[Any, ...]]  # the numbers of a record
    get: Callable[[Any], Any] | None  # the tail of a record
    tail: Tail | None
    default: tuple[Any, ...]  # the value of a field that this dialect does not send


class RecordShape:
    """A record in one dialect."""

    def __init__(self, record: type[Record], dialect: Dialect) -> None:
        self.record: Callable[..., Any] = record
        fields = fields_of(record, dialect)
        self._item: type[Record] | None = None
        if len(fields) == 1 and isinstance(fields[0].kind, Alone):
            self._item = fields[0].kind.item
            self._list = operator.attrgetter(fields[0].name)
            fields = fields_of(fields[0].kind.item, dialect)
        self._nested: list[tuple[slice, type[Record]]] = []  # values that are the fields of a record
        self._pieces = _pieces(self._flat(fields, dialect), dialect)

    def _flat(self, fields: list[Field], dialect: Dialect) -> list[Field]:
        """Return the fields, with those of nested records in their places."""
        flat: list[Field] = []
        for place, field in enumerate(fields):
            if isinstance(field.kind, type) and issubclass(field.kind, Record):
                inner = fields_of(field.kind, dialect)
                self._nested.append((slice(place, place + len(inner)), field.kind))
                flat += [one._replace(name=f"{field.name}.{one.name}") for one in inner]
            else:
                flat.append(field)
        return flat

    def values(self, data: bytes, at: int) -> tuple[list[Any], int]:
        """Read the values of the fields that begin at `at`. Raise struct.error or ValueError if they are
        invalid."""
        values: list[Any] = []
        for numbers, size, _, _, tail, default in self._pieces:
            values += numbers.unpack_from(data, at)
            at += size
            if tail is not None:
                values[-1], at = tail.read(data, at, values[-1])
            values += default
        for place, record in self._nested:
            values[place] = [record(*values[place])]
        if self._item is not None:
            values = [[self._item(*values)]]
        return values, at

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        values, at = self.values(data, at)
        return self.record(*values), at

    def write(self, parts: list[bytes], value: Any) -> None:
        if self._item is not None:
            (value,) = self._list(value)
        for numbers, _, pick, get, tail, _ in self._pieces:
            if tail is None or get is None:
                parts.append(numbers.pack(*pick(value)))
            else:
                length, following = tail.write(get(value))
                parts += (numbers.pack(*pick(value), length), following)


@functools.cache
def shape_of(record: type[Record], dialect: Dialect) -> RecordShape:
    return RecordShape(record, dialect)


def _pieces(fields: list[Field], dialect: Dialect) -> list[FieldRun]:
    pieces: list[FieldRun] = []
    run: list[Field] = []
    for field in fields:
        if field.present and isinstance(field.kind, Number):
            run.append(field)
            continue
        pieces.append(_piece(run, field, dialect))
        run = []
    if run:
        pieces.append(_piece(run, None, dialect))
    return pieces


def _piece(run: list[Field], last: Field | None, dialect: Dialect) -> FieldRun:
    tail = get = None
    default: tuple[Any, ...] = ()
    if last is not None and last.present:
        tail, get = _tail(last.kind, dialect), operator.attrgetter(last.name)
    elif last is not None:
        default = (last.default,)
    codes = "".join(field.kind.code for field in run)
    numbers = struct.Struct(">" + codes + (tail.code if tail is not None else ""))
    return FieldRun(numbers, numbers.size, _picker([field.name for field in run]), get, tail, default)


def _picker(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda _: ()
    pick = operator.attrgetter(*names)
    return pick if len(names) > 1 else lambda value: (pick(value),)


def _tail(kind: Any, dialect: Dialect) -> Tail:
    if kind is str:
        return Tail("h", _write_text, _read_text)
    if isinstance(kind.item, Number):
        return _list_of_numbers(kind.item)
    return _list_of_records(shape_of(kind.item, dialect))


def _write_text(value: str) -> tuple[int, bytes]:
    raw = value.encode()
    return len(raw), raw


def _read_text(data: bytes, at: int, length: int) -> tuple[str, int]:
    if not 0 <= length <= len(data) - at:
        raise ValueError(f"a text of {length} bytes where {len(data) - at} are left")
    return data[at : at + length].decode(), at + length


def _list_of_numbers(kind: Number) -> Tail:
    size = struct.calcsize(">" + kind.code)

    def write(items: list[int]) -> tuple[int, bytes]:
        return len(items), struct.pack(f">{len(items)}{kind.code}", *items) if items else b""

    def read(data: bytes, at: int, count: int) -> tuple[list[int], int]:
        _check_count(data, at, count)
        return list(struct.unpack_from(f">{count}{kind.code}", data, at)) if count else [], at + count * size

    return Tail("i", write, read)


def _list_of_records(shape: RecordShape) -> Tail:
    def write(items: list[Any]) -> tuple[int, bytes]:
        parts: list[bytes] = []
        for item in items:
            shape.write(parts, item)
        return len(items), b"".join(parts)

    def read(data: bytes, at: int, count: int) -> tuple[list[Any], int]:
        _check_count(data, at, count)
        items = []
        for _ in range(count):
            item, at = shape.read(data, at)
            items.append(item)
        return items, at

    return Tail("i", write, read)


def _check_count(data: bytes, at: int, count: int) -> None:
    if not 0 <= count <= len(data) - at:  # no item is smaller than a byte
        raise ValueError(f"a list of {count} items in {len(data) - at} bytes")
