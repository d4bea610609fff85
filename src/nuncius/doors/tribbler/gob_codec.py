"""Write structs as a gob stream. No I/O.

A struct is a `msgspec.Struct` whose fields have the names that Go uses (`rename="pascal"` is enough for
most). Fields are matched by name: fields that one side does not know are skipped, fields that the other did
not send are zero.
"""

from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

import msgspec

from nuncius.doors.tribbler import gob_wire_codec as wire

UNSIGNED = "uint"
Uint = Annotated[int, UNSIGNED]
"""The type of fields that are unsigned in Go."""

Write = Callable[[bytearray, Any], None]

_BASICS: dict[Any, tuple[int, Write]] = {
    bool: (wire.BOOL, lambda out, value: out.append(1 if value else 0)),
    int: (wire.INT, wire.write_int),
    Uint: (wire.UINT, wire.write_uint),
    float: (wire.FLOAT, wire.write_float),
    bytes: (wire.BYTES, wire.write_bytes),
    str: (wire.STRING, wire.write_string),
}


class _Out:
    """An outgoing type: its id, the messages that describe it, and the function that writes its values."""

    def __init__(self, type_id: int) -> None:
        self.type_id = type_id
        self.description = b""
        self.parts: list[_Out] = []
        self.write: Write = lambda out, value: None


class _Registry:
    """The types that this process sends, with the same ids on all connections."""

    def __init__(self) -> None:
        self._known: dict[Any, _Out] = {}

    def find(self, kind: Any) -> _Out:
        known = self._known.get(kind)
        if known is None:
            if kind in _BASICS:
                known = self._known[kind] = _Out(_BASICS[kind][0])
                known.write = _BASICS[kind][1]
            else:
                known = self._known[kind] = _Out(wire.FIRST_ID + len(self._known))
                (self._describe_list if get_origin(kind) is list else self._describe_struct)(kind, known)
        return known

    def _describe_list(self, kind: Any, made: _Out) -> None:
        element = self.find(get_args(kind)[0])
        made.parts = [element]
        out = _described(made.type_id, "", 2)
        out.append(1)
        wire.write_int(out, element.type_id)
        made.description = wire.message(-made.type_id, out + b"\0\0")

        def write(target: bytearray, values: list[Any]) -> None:
            wire.write_uint(target, len(values))
            for value in values:
                element.write(target, value)

        made.write = write

    def _describe_struct(self, kind: type[msgspec.Struct], made: _Out) -> None:
        fields = msgspec.structs.fields(kind)
        made.parts = [self.find(field.type) for field in fields]
        out = _described(made.type_id, kind.__name__, 3)
        if fields:
            out.append(1)
            wire.write_uint(out, len(fields))
        for field, part in zip(fields, made.parts, strict=True):
            out.append(1)
            wire.write_string(out, field.encode_name)
            out.append(1)
            wire.write_int(out, part.type_id)
            out.append(0)
        made.description = wire.message(-made.type_id, out + b"\0\0")
        # A nested struct is always sent, any other field unless it is zero.
        plan = [
            (field.name, part, isinstance(field.type, type) and issubclass(field.type, msgspec.Struct))
            for field, part in zip(fields, made.parts, strict=True)
        ]

        def write(target: bytearray, value: Any) -> None:
            delta = 1
            for name, part, always in plan:
                field = getattr(value, name)
                if field or always:
                    target.append(delta)
                    part.write(target, field)
                    delta = 1
                else:
                    delta += 1
            target.append(0)

        made.write = write


def _described(type_id: int, name: str, field: int) -> bytearray:
    """Return the beginning of a type's description, up to the end of its `CommonType`. `field` is
    `wireType`'s."""
    out = bytearray((field, 1))
    delta = 1
    if name:
        out.append(1)
        wire.write_string(out, name)
    else:
        delta = 2
    out.append(delta)
    wire.write_int(out, type_id)
    out.append(0)
    return out


_registry = _Registry()


class Encoder:
    """Encoder of one direction of a connection. Each type is described once, before its first value."""

    def __init__(self) -> None:
        self._described: set[int] = set()

    def encode(self, value: msgspec.Struct) -> bytes:
        kind = _registry.find(type(value))
        out: list[bytes] = []
        self._describe(kind, out)
        body = bytearray()
        kind.write(body, value)
        out.append(wire.message(kind.type_id, body))
        return b"".join(out)

    def _describe(self, kind: _Out, out: list[bytes]) -> None:
        if kind.type_id not in self._described and kind.type_id >= wire.FIRST_ID:
            self._described.add(kind.type_id)
            out.append(kind.description)
            for part in kind.parts:
                self._describe(part, out)
