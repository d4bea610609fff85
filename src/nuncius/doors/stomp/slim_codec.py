"""Encode and decode the slim dialect, and the first frame of any STOMP connection.

Every NUL ends a frame: there is no content-length. A body is followed by a blank line that is not part of it.
Lines end with a line feed.
"""

from collections.abc import Iterator

import msgspec

CONNECTED = b"CONNECTED\n\n\0"
RECEIPT = b"RECEIPT\n\n\0"
END_OF_BODY = b"\n\n\0"
_LINE_ENDS = b"\r\n"
COMMANDS = frozenset(("CONNECT", "SEND", "SUBSCRIBE", "DISCONNECT"))
_NO_HEADERS_HERE = frozenset(("DISCONNECT", "UNSUBSCRIBE", "ACK", "BEGIN", "COMMIT", "ABORT"))


class EndlessFrame(Exception):
    """A frame that exceeds the limit without an end."""


class SlimFrame(msgspec.Struct, frozen=True):
    """A frame; the command is empty if the frame is invalid."""

    command: str
    headers: dict[str, str]
    body: bytes = b""


UNREADABLE = SlimFrame("", {})


class Splitter:
    """A splitter of arriving bytes at NULs."""

    def __init__(self, max_frame: int) -> None:
        self._max_frame = max_frame
        self._buffer = bytearray()
        self._pieces: list[bytes] = []  # in reverse order

    @property
    def incomplete(self) -> int:
        return len(self._buffer)

    def receive(self, data: bytes) -> Iterator[bytes]:
        """Yield whole frames, without their NUL and the line ends before them. Frames that were not requested
        yet are in `rest`."""
        self._buffer += data if self._buffer else data.lstrip(_LINE_ENDS)
        if b"\0" in data:
            pieces = bytes(self._buffer).split(b"\0")
            self._buffer = bytearray(pieces.pop())
            self._pieces = pieces[::-1]
            while self._pieces:
                piece = self._pieces.pop().lstrip(_LINE_ENDS)
                if len(piece) > self._max_frame:
                    raise EndlessFrame
                yield piece
            self._buffer = self._buffer.lstrip(_LINE_ENDS)
        if len(self._buffer) > self._max_frame:
            raise EndlessFrame

    def rest(self) -> bytes:
        """Return the unmodified bytes after the last requested frame: they may be frames that do not end at
        NULs."""
        rest = b"".join([piece + b"\0" for piece in reversed(self._pieces)]) + bytes(self._buffer)
        self._pieces = []
        self._buffer.clear()
        return rest


def parse(piece: bytes) -> SlimFrame:
    head, _, body = piece.partition(b"\n\n")
    command, headers = _parse_head(head)
    if headers is None or command not in COMMANDS:
        return UNREADABLE
    trimmed = {name.strip(" "): value.strip(" ") for name, value in headers.items()}
    return SlimFrame(command, trimmed, body.removesuffix(b"\n\n"))


def introduction(piece: bytes) -> dict[str, str] | None:
    """Return the headers of a first frame, of any version, if it is a CONNECT or STOMP."""
    head = piece.replace(b"\r\n", b"\n").removesuffix(b"\n\n")
    command, headers = _parse_head(head)
    return headers if command in ("CONNECT", "STOMP") and len(head) < len(piece) else None


def is_slim(piece: bytes, headers: dict[str, str]) -> bool:
    """Return whether a first frame is the slim dialect's: a CONNECT with a login and no other header."""
    return piece.startswith(b"CONNECT\n") and [name.strip(" ") for name in headers] == ["login"]


def is_real(piece: bytes) -> bool:
    """Return whether the second frame shows that the client uses STOMP itself: a client of STOMP 1.0 may have
    sent only a login, too."""
    command, headers = _parse_head(piece.partition(b"\n\n")[0])
    names = {name.strip(" ") for name in headers or ()}
    if command == "SEND":
        return "destination" in names and "topic" not in names
    if command == "SUBSCRIBE":
        return names > {"destination"}
    return bool(names) and command in _NO_HEADERS_HERE


def _parse_head(head: bytes) -> tuple[str, dict[str, str] | None]:
    try:
        command, *lines = head.decode().split("\n")
    except UnicodeDecodeError:
        return "", None
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name:
            return command, None
        headers.setdefault(name, value)
    return command, headers


def connect(login: str) -> bytes:
    return f"CONNECT\nlogin:{login}\n\n\0".encode()


def subscribe(topic: str) -> bytes:
    return f"SUBSCRIBE\ndestination:{topic}\n\n\0".encode()


def send(topic: str, body: bytes) -> bytes:
    return f"SEND\ntopic:{topic}\n\n".encode() + body + END_OF_BODY


DISCONNECT = b"DISCONNECT\n\n\0"


def error(text: str) -> bytes:
    return f"ERROR\nmessage:{' '.join(text.split())}\n\n\0".encode()


def message_head(topic: str) -> bytes:
    """Return the part of a MESSAGE before its body; END_OF_BODY follows the body."""
    return f"MESSAGE\ndestination:{topic}\n\n".encode()
