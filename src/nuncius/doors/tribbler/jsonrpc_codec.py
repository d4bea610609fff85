"""Go's net/rpc/jsonrpc: JSON objects one after the other on a plain connection, without I/O.

A request is `{"method": "Tribserver.CreateUser", "params": [{"Userid": "dga"}], "id": 0}`, its answer
`{"id": 0, "result": {"Status": 0}, "error": null}`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from nuncius.doors.tribbler.gob_decoder_codec import FREE, MAX_MESSAGE, OF_STRUCT, S
from nuncius.doors.tribbler.gob_wire_codec import GobError, Mismatch

# The marks that matter for the end of an object: brackets, and strings, whose brackets do not count.
_MARK = re.compile(rb'["{}\[\]]')
_REST_OF_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_BLANK = re.compile(rb"[ \t\r\n]*+")
_NOT_JSON = (msgspec.MsgspecError, UnicodeError, RecursionError)


class _Request(msgspec.Struct):
    method: str
    params: msgspec.Raw = msgspec.Raw(b"null")
    id: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class JsonCall:
    method: str
    id: bytes
    params: bytes


class JsonServerCodec:
    def __init__(self, most: int = MAX_MESSAGE) -> None:
        self._most = most
        self._buffer = bytearray()
        self._seen = 0  # length of the incomplete object that was searched; nothing is searched twice
        self._depth = 0
        self._opened = 0  # number of objects and lists in it
        self._in_string = False
        self.to_say = b""

    @property
    def incomplete(self) -> int:
        return len(self._buffer)

    def receive(self, data: bytes) -> Iterator[JsonCall]:
        """Yield complete requests, in order. Raise GobError at an invalid one, after which the connection
        must end."""
        self._buffer += data
        while (text := self._next_object()) is not None:
            try:
                request = msgspec.json.decode(text, type=_Request)
            except _NOT_JSON as error:
                raise GobError(f"jsonrpc: {error}") from None
            yield JsonCall(request.method, bytes(request.id), bytes(request.params))

    def _next_object(self) -> bytes | None:
        buffer = self._buffer
        if self._depth == 0:
            blank = _BLANK.match(buffer)
            del buffer[: blank.end() if blank else 0]
            if buffer and buffer[0] != ord("{"):
                raise GobError("jsonrpc: a request is a JSON object")
        while (mark := self._next_mark()) is not None:
            if mark in b"{[":
                self._depth += 1
                self._opened += 1
                if self._opened * OF_STRUCT > FREE + self._seen:
                    raise GobError("jsonrpc: too many objects for a request of this length")
                continue
            self._depth -= 1
            if self._depth == 0:
                text = bytes(buffer[: self._seen])
                del buffer[: self._seen]
                self._seen = self._opened = 0
                return text
        if len(buffer) > self._most:
            raise GobError(f"jsonrpc: a request has at most {self._most} bytes")
        return None

    def _next_mark(self) -> bytes | None:
        """Return the next bracket outside strings, if it has arrived."""
        buffer = self._buffer
        while True:
            if self._in_string:
                rest = _REST_OF_STRING.match(buffer, self._seen)
                self._seen = rest.end() if rest else self._seen
                if buffer[self._seen : self._seen + 1] != b'"':
                    return None  # the string continues; a backslash at the end waits for its character
                self._seen += 1
                self._in_string = False
            found = _MARK.search(buffer, self._seen)
            self._seen = found.end() if found else len(buffer)
            if found is None:
                return None
            if found[0] != b'"':
                return bytes(found[0])
            self._in_string = True

    def arguments(self, call: JsonCall, kind: type[S]) -> S:
        """Decode the first parameter; Go's clients send exactly one."""
        try:
            return msgspec.json.decode(call.params, type=tuple[kind])[0]  # type: ignore[valid-type]
        except _NOT_JSON as error:
            raise Mismatch(f"jsonrpc: {error}") from None

    def answer(self, call: JsonCall, reply: msgspec.Struct) -> bytes:
        return b'{"id":' + call.id + b',"result":' + _encode(reply) + b',"error":null}\n'

    def refuse(self, call: JsonCall, error: str) -> bytes:
        return b'{"id":' + call.id + b',"result":null,"error":' + _encode(error) + b"}\n"


def _encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # bytes that are not UTF-8, which JSON cannot carry
        return msgspec.json.encode(_as_text(msgspec.to_builtins(value)))


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, list):
        return [_as_text(each) for each in value]
    if isinstance(value, dict):
        return {name: _as_text(each) for name, each in value.items()}
    return value
