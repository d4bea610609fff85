"""Encode and decode ZMTP 3.1, the protocol of ZeroMQ's sockets, as a ROUTER. No I/O.

A connection begins with a greeting of 64 bytes and a READY command in each direction; then follow messages,
each a sequence of frames. It is implemented here instead of using libzmq for three reasons. Unread bytes are
counted per client and slow down that client only, where a ROUTER of libzmq counts messages and drops those
above its limit. Several processes can listen on one port. And a request costs half the processor time,
because it does not pass between threads.

The only security mechanism is NULL. A client of ZMTP 2.0 (libzmq 3, JeroMQ before 0.4) is answered in that
version: its greeting ends differently and it has no commands, its messages are the same. Hence the greeting
is sent in two parts, the second when the peer's version is known. ZMTP 1.0 (libzmq 2) is not supported.
"""

from collections.abc import Sequence

GREETING_BYTES = 64
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
MAX_COMMAND = 1 << 12
MAX_FRAMES = 64

_MORE, _LONG, _COMMAND = 1, 2, 4
_VERSION_AT, _MECHANISM_AT, _MECHANISM_END = 10, 12, 32
_MAY_CONNECT = (b"REQ", b"DEALER", b"ROUTER")

# ZMTP 2.0: after the version follow a number for the socket type, and a frame with the identity.
_VERSION_2 = 1
_MAY_CONNECT_2 = (b"\x03", b"\x05", b"\x06")  # the same, in the same order
_IDENTITY_AT = 12
_REST_OF_GREETING_2 = b"\x06" + b"\0\0"
_SHORT = [bytes((_MORE, size)) for size in range(256)], [bytes((0, size)) for size in range(256)]


class ZmtpError(Exception):
    """The peer violates the protocol. `last_words` is sent to it before the connection is closed, and
    `before` are the messages that were complete before the violation."""

    def __init__(self, reason: str, last_words: bytes = b"") -> None:
        super().__init__(reason)
        self.last_words = last_words
        self.before: list[list[bytes]] = []


class OversizedMessage(list[bytes]):
    """A message above the size limit. Only its first frames were kept, for the envelope of the answer."""


def encode(frames: Sequence[bytes]) -> bytes:
    """Encode a message."""
    parts = []
    last = len(frames) - 1
    for n, frame in enumerate(frames):
        size = len(frame)
        if size < 256:
            parts.append(_SHORT[n == last][size])
        else:
            parts.append(bytes((_LONG | (n < last),)) + size.to_bytes(8, "big"))
        parts.append(frame)
    return b"".join(parts)


def _command(name: bytes, data: bytes) -> bytes:
    body = bytes((len(name),)) + name + data
    return bytes((_COMMAND, len(body))) + body


def _properties(**values: bytes) -> bytes:
    parts = []
    for name, value in values.items():
        key = name.replace("_", "-").encode()
        parts += [bytes((len(key),)), key, len(value).to_bytes(4, "big"), value]
    return b"".join(parts)


READY = _command(b"READY", _properties(Socket_Type=b"ROUTER", Identity=b""))


class ZmtpDecoder:
    """Decoder of one connection, from its first byte. `to_say` is what the protocol itself has to send
    next."""

    def __init__(self, max_message: int) -> None:
        self._max_message = max_message
        self._pieces: list[bytes] = []
        self._size = 0  # bytes of the pieces
        self._needed = 0  # bytes needed to go on
        self._skipping = 0  # bytes to come that are dropped
        self._version: int | None = None  # of the peer
        self._greeted = self._ready = False
        self._frames: list[bytes] = []
        self._frame_bytes = 0
        self._too_large = False
        self.to_say = [GREETING[: _VERSION_AT + 1]]

    @property
    def incomplete(self) -> int:
        """Bytes kept of an incomplete message."""
        return self._size + self._frame_bytes

    @property
    def is_in_a_message(self) -> bool:
        """Return whether a message is incomplete, even if none of it is kept."""
        return self._skipping > 0 or bool(self._frames)

    @property
    def is_ready(self) -> bool:
        """Return whether the peer has completed its introduction."""
        return self._ready

    def clear(self) -> None:
        """Drop an incomplete message."""
        self._pieces.clear()
        self._frames.clear()

    def receive(self, data: bytes) -> list[list[bytes]]:
        """Return the messages that these bytes complete."""
        if self._skipping:
            skipped = min(self._skipping, len(data))
            self._skipping -= skipped
            data = data[skipped:]
        if self._pieces:
            self._pieces.append(data)
            self._size += len(data)
            if self._size < self._needed:
                return []
            data = b"".join(self._pieces)
            self._pieces.clear()
        messages: list[list[bytes]] = []
        try:
            start = self._read_frames(data, messages) if self._greeted else self._greet(data, messages)
        except ZmtpError as error:
            error.before = messages
            raise
        self._size = len(data) - start
        if self._size:
            self._pieces.append(data[start:])
        return messages

    def _greet(self, data: bytes, messages: list[list[bytes]]) -> int:
        if data[:1] not in (b"", GREETING[:1]) or (len(data) > 9 and data[9] != GREETING[9]):
            raise ZmtpError("this is not ZeroMQ")
        if len(data) <= _VERSION_AT:
            self._needed = _VERSION_AT + 1
            return 0
        if self._version is None:
            self._version = data[_VERSION_AT]
            if self._version != _VERSION_2 and self._version < 3:
                raise ZmtpError("this is a version of ZeroMQ's protocol before 2.0")
            is_old = self._version == _VERSION_2
            self.to_say.append(_REST_OF_GREETING_2 if is_old else GREETING[_VERSION_AT + 1 :])
        if self._version == _VERSION_2:
            return self._greet_old(data, messages)
        if len(data) < GREETING_BYTES:
            self._needed = GREETING_BYTES
            return 0
        if data[_MECHANISM_AT:_MECHANISM_END].rstrip(b"\0") != b"NULL":
            raise ZmtpError("there is no security mechanism here but NULL")
        self._greeted = True
        self.to_say.append(READY)
        return self._read_frames(data, messages, GREETING_BYTES)

    def _greet_old(self, data: bytes, messages: list[list[bytes]]) -> int:
        """Read the rest of a greeting of ZMTP 2.0. The identity is ignored."""
        if data[_VERSION_AT + 1 : _IDENTITY_AT] not in (b"", *_MAY_CONNECT_2):
            raise ZmtpError("a socket that is no REQ or DEALER")
        size = data[_IDENTITY_AT + 1] if len(data) > _IDENTITY_AT + 1 else 0
        self._needed = _IDENTITY_AT + 2 + size
        if len(data) < self._needed:
            return 0
        if data[_IDENTITY_AT]:
            raise ZmtpError("an identity that is none")
        self._greeted = self._ready = True
        return self._read_frames(data, messages, self._needed)

    def _read_frames(self, data: bytes, messages: list[list[bytes]], start: int = 0) -> int:
        """Read complete frames. Return the position of the first incomplete one."""
        end = len(data)
        while True:
            left = end - start
            if left < 2:
                self._needed = 2
                return start
            flags, size, head = data[start], data[start + 1], 2
            if flags & _LONG:
                if left < 9:
                    self._needed = 9
                    return start
                size, head = int.from_bytes(data[start + 1 : start + 9], "big"), 9
            stop = start + head + size
            if flags >= _COMMAND:
                self._check_command(flags, size)
            elif self._is_unwanted(size):
                self._skipping = max(0, stop - end)
                start = min(stop, end)
                if not flags & _MORE:
                    messages.append(self._end_of_message())
                continue
            if stop > end:
                self._needed = head + size
                return start
            body = data[start + head : stop]
            start = stop
            if flags >= _COMMAND:
                self._obey(body)
                continue
            self._frames.append(body)
            self._frame_bytes += size
            if not flags & _MORE:
                messages.append(self._end_of_message())

    def _is_unwanted(self, size: int) -> bool:
        if not self._ready:
            raise ZmtpError("a message before READY")
        if self._frame_bytes + size > self._max_message or len(self._frames) == MAX_FRAMES:
            self._too_large = True
        return self._too_large

    def _end_of_message(self) -> list[bytes]:
        frames = OversizedMessage(self._frames) if self._too_large else self._frames
        self._frames = []
        self._frame_bytes = 0
        self._too_large = False
        return frames

    def _check_command(self, flags: int, size: int) -> None:
        if flags not in (_COMMAND, _COMMAND | _LONG) or self._version == _VERSION_2:
            raise ZmtpError(f"flags {flags:#x} mean nothing")
        if size > MAX_COMMAND:
            raise ZmtpError("a command that is too long", error("too long"))

    def _obey(self, body: bytes) -> None:
        length = body[0] if body else 0
        name, data = body[1 : 1 + length], body[1 + length :]
        if name == b"READY":
            if _socket_type(data) not in _MAY_CONNECT:
                raise ZmtpError("a socket that is no REQ or DEALER", error("use a REQ or DEALER socket"))
            self._ready = True
        elif name == b"PING":
            self.to_say.append(_command(b"PONG", data[2:18]))
        elif name == b"ERROR" or not self._ready:
            raise ZmtpError("the peer does not want to talk")


def error(reason: str) -> bytes:
    """Return an ERROR command, after which the connection is closed."""
    return _command(b"ERROR", bytes((len(reason),)) + reason.encode())


def _socket_type(metadata: bytes) -> bytes | None:
    """Return the Socket-Type property. Names of properties are not case-sensitive."""
    at = 0
    while at < len(metadata):
        value_at = at + 1 + metadata[at] + 4
        name = metadata[at + 1 : value_at - 4]
        end = value_at + int.from_bytes(metadata[value_at - 4 : value_at], "big")
        if end > len(metadata):
            return None
        if name.lower() == b"socket-type":
            return metadata[value_at:end]
        at = end
    return None
