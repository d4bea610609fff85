"""Read structs from a gob stream. No I/O."""

from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from nuncius.doors.tribbler import gob_wire_codec as wire
from nuncius.doors.tribbler.gob_codec import UNSIGNED, Uint
from nuncius.doors.tribbler.gob_wire_codec import GobError, Mismatch, StructType, WireType

MAX_MESSAGE = 32 << 20
MAX_TYPES = 2000
FREE = 80_000
OF_STRUCT, OF_OTHER = 8, 2
"""Bytes of its message that each list element must account for, once all elements together exceed the free
amount. A struct without fields is one byte on the wire, and a hundred in memory."""

Read = Callable[[bytes, int], tuple[Any, int]]
S = TypeVar("S", bound=msgspec.Struct)

_READS: dict[int, tuple[Sequence[Any], Read]] = {
    wire.BOOL: ((bool,), lambda data, at: (data[at] != 0, at + 1)),
    wire.INT: ((int,), wire.read_int),
    wire.UINT: ((Uint, int), wire.read_uint),
    wire.FLOAT: ((float,), wire.read_float),
    wire.BYTES: ((bytes,), wire.read_bytes),
    wire.STRING: ((str,), wire.read_string),
}
"""The types that a value of each built-in type may be read as, and the function that reads it."""
_BUILT_IN = {*_READS, wire.COMPLEX, wire.INTERFACE}


class _Unfinished(Exception):
    """The value continues in the next message."""


class Message:
    """A received value that is not decoded yet."""

    __slots__ = ("at", "data", "type_id")

    def __init__(self, type_id: int, data: bytes, at: int) -> None:
        self.type_id = type_id
        self.data = data
        self.at = at


class GobDecoder:
    """Decoder of one direction of a connection."""

    def __init__(self, most: int = MAX_MESSAGE) -> None:
        self._most = most
        self._buffer = bytearray()
        self._types: dict[int, WireType] = {}
        self._plans: dict[tuple[int, Any], Read] = {}
        self._simple: set[int] = set()  # types without nested interfaces
        self._begun = b""  # the beginning of a value that spans several messages
        self._left = 0  # weight that elements of the current value may still add

    def feed(self, data: bytes) -> None:
        self._buffer += data

    @property
    def waiting(self) -> int:
        """Bytes of an incomplete message."""
        return len(self._buffer) + len(self._begun)

    def next(self) -> Message | None:
        """Return the next value, if it is complete. Descriptions of types before it are learned."""
        while True:
            data = self._next_message()
            if data is None:
                return None
            if self._begun:
                data = self._continued(data)
            try:
                type_id, at = wire.read_int(data, 0)
                if type_id < 0:
                    self._learn(-type_id, data, at)
                    continue
            except IndexError:
                raise GobError("gob: message is cut short") from None
            message = Message(type_id, data, at)
            if self._is_whole(message):
                return message
            self._begun = data

    def _continued(self, data: bytes) -> bytes:
        """Return the begun value with this message appended: a value whose message ends with a type
        description continues in the next message."""
        length = bytearray()
        wire.write_uint(length, len(data))
        whole = self._begun + length + data
        self._begun = b""
        if len(whole) > self._most:
            raise GobError(f"gob: a value has at most {self._most} bytes")
        return whole

    def _is_whole(self, message: Message) -> bool:
        """Return whether a value is complete. Only values with interfaces in them can continue in another
        message. They are parsed here, so that the types they describe are known even if the value is never
        decoded."""
        if message.type_id in self._simple:
            return True
        if self._has_interface(message.type_id):
            try:
                self.skip(message)
            except _Unfinished:
                return False
        else:
            self._simple.add(message.type_id)
        return True

    def _has_interface(self, type_id: int) -> bool:
        """Return whether a type has interfaces in it. Raise GobError if one of its parts is unknown."""
        seen: set[int] = set()
        unseen = {type_id}
        while unseen:
            each = unseen.pop()
            seen.add(each)
            found = self._types.get(each)
            if isinstance(found, StructType):
                unseen.update(part for _, part in found.fields if part not in seen)
            elif isinstance(found, wire.SliceType):
                unseen.update({found.element} - seen)
            elif isinstance(found, wire.MapType):
                unseen.update({found.key, found.element} - seen)
            elif found is None and each not in _BUILT_IN:
                raise GobError(f"gob: unknown type id {each}")
        return wire.INTERFACE in seen

    def _next_message(self) -> bytes | None:
        buffer = self._buffer
        if not buffer:
            return None
        width = 1 if buffer[0] < 128 else 257 - buffer[0]
        if width > 9:
            raise GobError("gob: bad length of a message")
        if len(buffer) < width:
            return None
        length, start = wire.read_uint(bytes(buffer[:width]), 0)
        if length > self._most:
            raise GobError(f"gob: a message has at most {self._most} bytes, not {length}")
        if len(buffer) < start + length:
            return None
        data = bytes(buffer[start : start + length])
        del buffer[: start + length]
        return data

    def _learn(self, type_id: int, data: bytes, at: int) -> int:
        found, at = wire.read_type(data, at)
        if len(self._types) >= MAX_TYPES:
            raise GobError(f"gob: a connection has at most {MAX_TYPES} types")
        if type_id < 64:
            raise GobError("gob: a built-in type is described again")
        if self._types.setdefault(type_id, found) != found:
            raise GobError("gob: duplicate type received")
        return at

    def decode(self, message: Message, kind: type[S]) -> S:
        """Return the value as a struct. Raise Mismatch if it is of another type."""
        return self._read(message, kind)  # type: ignore[no-any-return]

    def skip(self, message: Message) -> None:
        """Parse a value without keeping it, to learn the types described in it."""
        self._read(message, None)

    def _read(self, message: Message, kind: Any) -> Any:
        at = message.at
        self._left = FREE + len(message.data)
        found = self._types.get(message.type_id)
        try:
            if not isinstance(found, StructType):
                at += 1  # a zero precedes values that are not structs
            value, _ = self._plan(message.type_id, kind)(message.data, at)
        except IndexError:
            raise GobError("gob: value is cut short") from None
        except RecursionError:
            raise GobError("gob: value is nested too deep") from None
        return value

    # Return the function that reads a value of a described type as `kind`; None as `kind` discards the value.

    def _plan(self, type_id: int, kind: Any) -> Read:
        plan = self._plans.get((type_id, kind))
        if plan is None:
            plan = self._make_plan(type_id, kind)
            self._plans[type_id, kind] = plan
        return plan

    def _make_plan(self, type_id: int, kind: Any) -> Read:
        if isinstance(kind, UnionType):
            return self._union_plan(type_id, kind)
        if type_id in _READS:
            kinds, read = _READS[type_id]
            if kind is not None and kind not in kinds:
                raise Mismatch(f"gob: {_name(kinds[0])} where {_name(kind)} is wanted")
            return read
        if type_id == wire.COMPLEX and kind is None:
            return lambda data, at: wire.read_float(data, wire.read_float(data, at)[1])
        if type_id == wire.INTERFACE and kind is None:
            return self._skip_interface
        found = self._types.get(type_id)
        if isinstance(found, StructType):
            return self._struct_plan(found, kind)
        if isinstance(found, wire.SliceType) and (kind is None or get_origin(kind) is list):
            return self._list_plan(found, None if kind is None else get_args(kind)[0])
        if isinstance(found, wire.MapType) and kind is None:
            return self._map_plan(found)
        if isinstance(found, wire.OpaqueType) and kind is None:
            return wire.read_bytes
        raise Mismatch(f"gob: another type where {_name(kind)} is wanted")

    def _union_plan(self, type_id: int, kind: UnionType) -> Read:
        """Return the function that reads a field of one of several types, as the stream tells."""
        for each in get_args(kind):
            try:
                return self._plan(type_id, each)
            except Mismatch:
                continue
        raise Mismatch(f"gob: another type where {_name(kind)} is wanted")

    def _struct_plan(self, found: StructType, kind: Any) -> Read:
        wanted: dict[str, Any] = {}
        if kind is not None:
            if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
                raise Mismatch(f"gob: struct {found.name} where {_name(kind)} is wanted")
            wanted = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        fields = [(wanted.get(name), type_id) for name, type_id in found.fields]
        reads: list[Read | None] = [None] * len(fields)

        def read(data: bytes, at: int) -> tuple[Any, int]:
            values: dict[str, Any] = {}
            field = -1
            while True:
                delta = data[at]
                at += 1
                if delta == 0:
                    return (None if kind is None else kind(**values)), at
                if delta >= 128:
                    raise GobError("gob: bad field number")
                field += delta
                if field >= len(fields):
                    raise GobError("gob: field number out of range")
                target, type_id = fields[field]
                each = reads[field]
                if each is None:  # looked up at the first value, because a type may contain itself
                    try:
                        each = self._plan(type_id, None if target is None else target.type)
                    except Mismatch as error:
                        raise Mismatch(f"{error} (field {found.name}.{found.fields[field][0]})") from None
                    reads[field] = each
                value, at = each(data, at)
                if target is not None:
                    values[target.name] = value

        return read

    def _list_plan(self, found: wire.SliceType, element: Any) -> Read:
        weight = OF_OTHER if found.element in _READS else OF_STRUCT

        def read(data: bytes, at: int) -> tuple[Any, int]:
            each = self._plan(found.element, element)
            count, at = wire.read_count(data, at)
            self._weigh(count * weight)
            values = []
            for _ in range(count):
                value, at = each(data, at)
                if element is not None:
                    values.append(value)
            return values, at

        return read

    def _weigh(self, weight: int) -> None:
        self._left -= weight
        if self._left < 0:
            raise GobError("gob: too many elements for a message of this length")

    def _map_plan(self, found: wire.MapType) -> Read:
        def read(data: bytes, at: int) -> tuple[Any, int]:
            key, element = self._plan(found.key, None), self._plan(found.element, None)
            count, at = wire.read_count(data, at)
            self._weigh(count * OF_STRUCT)
            for _ in range(count):
                _, at = key(data, at)
                _, at = element(data, at)
            return None, at

        return read

    def _skip_interface(self, data: bytes, at: int) -> tuple[Any, int]:
        """Skip an interface value: a type's name, its id (after descriptions, if any), and a value with its
        length."""
        name, at = wire.read_bytes(data, at)
        if not name:
            return None, at
        while True:
            type_id, at = wire.read_int(data, at)
            if type_id >= 0:
                return None, wire.read_bytes(data, at)[1]
            at = self._learn(-type_id, data, at)
            if at == len(data):
                raise _Unfinished
            _, at = wire.read_uint(data, at)  # length of the next message


def _name(kind: Any) -> str:
    if isinstance(kind, UnionType):
        return " or ".join(map(_name, get_args(kind)))
    return UNSIGNED if kind is Uint else getattr(kind, "__name__", str(kind))
