"""Encode and decode STOMP frames. No I/O.

A frame is a command, headers, a blank line, a body and a NUL. It may arrive in pieces of any size, and an
incomplete frame must not be searched again for every piece. So the decoder remembers what it waits for, the
end of a line, a NUL or a number of bytes, and searches only when that can have arrived.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from nuncius.doors.stomp.frames.versions import StompError, Version, header_lines, unescape

_BLANK_LINE = re.compile(rb"\n\r?\n")
_CONTENT_LENGTH = re.compile(rb"\ncontent-length:([0-9]+)\n")
_WITH_BODY = frozenset(("SEND", "MESSAGE", "ERROR"))
_END_OF_LINE = b"\r\n"
_LENGTH_DIGITS = 18
LINE_END, NUL = -1, -2  # what an incomplete frame waits for; otherwise a number of bytes


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """Size limits of a frame, in bytes."""

    max_headers: int = 100  # their number
    max_line: int = 16 << 10
    max_head: int = 64 << 10  # command and headers together
    max_body: int = 8 << 20


class Frame(msgspec.Struct, frozen=True):
    command: str
    headers: dict[str, str]
    body: bytes = b""


class BadFrame(StompError):
    """A frame with valid headers and an invalid body or end."""

    def __init__(self, text: str, frame: Frame) -> None:
        super().__init__(text)
        self.frame = frame


def encode(command: str, headers: Mapping[str, str], body: bytes, version: Version) -> bytes:
    return f"{command}\n{header_lines(headers, version)}\n".encode() + body + b"\0"


def cut(data: bytes) -> Iterator[bytes]:
    """Split sent bytes into frames. A heart-beat counts as one."""
    start = 0
    while start < len(data):
        end = start + 1
        if data[start] not in _END_OF_LINE:
            body = data.index(b"\n\n", start) + 2
            length = _CONTENT_LENGTH.search(data, start, body)
            end = data.index(b"\0", body if length is None else body + int(length[1])) + 1
        yield data[start:end]
        start = end


class FrameDecoder:
    """Decoder of one connection's frames, in one version. It raises `ProtocolError` after it has returned the
    frames before the error."""

    def __init__(self, version: Version, limits: FrameLimits) -> None:
        self._version = version
        self._is_10 = version is Version.V10
        self._is_12 = version is Version.V12
        self._limits = limits
        self._buffer = bytearray()
        self._waiting_for = LINE_END
        self._enough = limits.max_head  # buffer size at which the frame is certainly too large

    @property
    def incomplete(self) -> int:
        """Bytes of an incomplete frame."""
        return len(self._buffer)

    def clear(self) -> None:
        """Drop an incomplete frame."""
        self._buffer.clear()

    def receive(self, data: bytes) -> Iterator[Frame]:
        if self._buffer:
            self._buffer += data
            if not self._may_be_complete(data):
                return
            data = bytes(self._buffer)
            self._buffer.clear()
        position, end = 0, len(data)
        while True:
            while position < end and data[position] in _END_OF_LINE:
                position += 1
            if position == end:
                return
            frame, after = self._frame(data, position)
            if frame is None:
                self._waiting_for = after
                self._buffer += memoryview(data)[position:]
                return
            yield frame
            position = after

    def _may_be_complete(self, data: bytes) -> bool:
        if self._waiting_for == LINE_END:
            return b"\n" in data or b"\0" in data or len(self._buffer) >= self._enough
        if self._waiting_for == NUL:
            return b"\0" in data or len(self._buffer) >= self._enough
        return len(self._buffer) >= self._waiting_for

    def _frame(self, data: bytes, start: int) -> tuple[Frame | None, int]:
        """Parse the frame at `start`. Return it and where it ends, or None and what is missing."""
        head_end, body_start = self._find_blank_line(data, start)
        if not body_start:
            self._check_head(data, start)
            self._enough = self._limits.max_head
            return None, LINE_END
        if data.find(b"\0", start, head_end) >= 0:
            raise StompError("the headers of a frame end with a blank line")
        command, headers = self._parse_head(data[start:head_end])
        try:
            body, after = self._body(data, start, body_start, headers.get("content-length"))
        except StompError as error:
            raise BadFrame(str(error), Frame(command, headers)) from None
        if body and command not in _WITH_BODY and not self._is_10:
            raise BadFrame(f"a frame {command!r} has no body", Frame(command, headers))
        return None if body is None else Frame(command, headers, body), after

    def _body(self, data: bytes, start: int, body_start: int, length: str | None) -> tuple[bytes | None, int]:
        """Return the body and where the frame ends, or None and what is missing."""
        if length is None:
            end = data.find(b"\0", body_start, body_start + self._limits.max_body + 1)
            if end < 0:
                self._check_body(len(data) - body_start)
                self._enough = body_start - start + self._limits.max_body + 1
                return None, NUL
        else:
            end = body_start + self._content_length(length)
            if end >= len(data):
                return None, end + 1 - start
            if data[end]:
                raise StompError("there is no NUL where content-length says that the body ends")
        return data[body_start:end], end + 1

    def _find_blank_line(self, data: bytes, start: int) -> tuple[int, int]:
        limit = start + self._limits.max_head
        if self._is_12:
            found = _BLANK_LINE.search(data, start, limit)
            return found.span() if found else (0, 0)
        at = data.find(b"\n\n", start, limit)
        return (0, 0) if at < 0 else (at, at + 2)

    def _check_head(self, data: bytes, start: int) -> None:
        if data.find(b"\0", start, start + self._limits.max_head) >= 0:
            raise StompError("the headers of a frame end with a blank line")
        if len(data) - start >= self._limits.max_head:
            raise StompError(f"command and headers have at most {self._limits.max_head} bytes")

    def _parse_head(self, head: bytes) -> tuple[str, dict[str, str]]:
        try:
            command, *lines = head.decode().split("\n")
        except UnicodeDecodeError:
            raise StompError("headers are UTF-8") from None
        self._check_lines(head, len(lines))
        if self._is_12 and b"\r" in head:
            command, *lines = [line.removesuffix("\r") for line in (command, *lines)]
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name:
                raise StompError(f"{line[:100]!r} is no header")
            if name not in headers:
                headers[name] = value
        if self._is_10 and b" " in head:
            headers = _first(headers, lambda text: text.strip(" "))
        elif b"\\" in head and not self._is_10:
            headers = _first(headers, lambda text: unescape(text, self._version))
        return command, headers

    def _check_lines(self, head: bytes, count: int) -> None:
        limits = self._limits
        if count > limits.max_headers:
            raise StompError(f"a frame has at most {limits.max_headers} headers")
        if len(head) > limits.max_line and max(map(len, head.split(b"\n"))) > limits.max_line:
            raise StompError(f"a header has at most {limits.max_line} bytes")

    def _content_length(self, text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or len(text) > _LENGTH_DIGITS:
            raise StompError("content-length is a number of bytes")
        self._check_body(int(text))
        return int(text)

    def _check_body(self, size: int) -> None:
        if size > self._limits.max_body:
            raise StompError(f"a body has at most {self._limits.max_body} bytes")


def _first(headers: Mapping[str, str], change: Callable[[str], str]) -> dict[str, str]:
    """Return the headers with changed names and values. If two names become equal, the first one counts."""
    changed: dict[str, str] = {}
    for name, value in headers.items():
        changed.setdefault(change(name), change(value))
    return changed
