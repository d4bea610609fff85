"""Go's net/rpc: gob streams of headers and bodies, usually after an HTTP CONNECT. No I/O.

A request is a header with a number and a method, and its arguments; the answer has the same number. Answers
come in any order.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from nuncius.doors.tribbler.gob_codec import Encoder, Uint
from nuncius.doors.tribbler.gob_decoder_codec import MAX_MESSAGE, GobDecoder, Message, S

CONNECT = b"CONNECT /_goRPC_ HTTP/1.0\n\n"
CONNECTED = b"HTTP/1.0 200 Connected to Go RPC\n\n"
MUST_CONNECT = (
    b"HTTP/1.0 405 Method Not Allowed\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Connection: close\r\n\r\n405 must CONNECT\n"
)
NOT_FOUND = (
    b"HTTP/1.0 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Connection: close\r\n\r\n404 page not found\n"
)
MAX_HEAD = 8192
MAX_ANSWER = 256 << 20


class RpcRequest(msgspec.Struct, rename="pascal", frozen=True, gc=False):
    service_method: str = ""
    seq: Uint = 0


class Response(msgspec.Struct, rename="pascal", frozen=True, gc=False):
    service_method: str = ""
    seq: Uint = 0
    error: str = ""


class InvalidRequest(msgspec.Struct, frozen=True):
    """The body of an error answer, as Go sends it."""


_NO_BODY = InvalidRequest()


class HandshakeError(Exception):
    """The connection does not begin like an RPC connection. `last_words` is sent to the other side."""

    def __init__(self, reason: str, last_words: bytes = b"") -> None:
        super().__init__(reason)
        self.last_words = last_words


@dataclass(frozen=True, slots=True)
class RpcCall:
    """A request whose arguments are not decoded yet."""

    method: str
    seq: int
    body: Message


@dataclass(frozen=True, slots=True)
class RpcAnswer:
    seq: int
    error: str
    body: Message


class ServerCodec:
    """The server's side of a connection."""

    def __init__(self, most: int = MAX_MESSAGE, *, over_http: bool = True) -> None:
        """Without `over_http` the streams begin at once, as for Go's `rpc.Dial`."""
        self._decoder = GobDecoder(most)
        self._encoder = Encoder()
        self._head: bytearray | None = bytearray() if over_http else None
        self._request: RpcRequest | None = None
        self.to_say = b""

    @property
    def incomplete(self) -> int:
        """Bytes of an incomplete call; not 0 if a call has begun."""
        return self._decoder.waiting + len(self._head or b"") + (self._request is not None)

    def receive(self, data: bytes) -> Iterator[RpcCall]:
        """Yield complete calls, in order. Raise HandshakeError or GobError at invalid bytes, after which the
        connection must end."""
        if self._head is not None:
            rest = self._shake_hands(self._head, data)
            if rest is None:
                return
            data = rest
        self._decoder.feed(data)
        while (message := self._decoder.next()) is not None:
            if self._request is None:
                self._request = self._decoder.decode(message, RpcRequest)
            else:
                call = RpcCall(self._request.service_method, self._request.seq, message)
                self._request = None
                yield call

    def _shake_hands(self, head: bytearray, data: bytes) -> bytes | None:
        """Return the bytes after the head of the HTTP request, or None while the head is incomplete."""
        head += data
        ends = [end for mark in (b"\n\n", b"\r\n\r\n") if (end := head.find(mark)) >= 0]
        if not ends:
            if len(head) > MAX_HEAD:
                raise HandshakeError("an endless HTTP request")
            return None
        end = min(ends)
        words = bytes(head[:end]).split(None, 2)
        if len(words) < 2 or words[0] != b"CONNECT":
            raise HandshakeError("not a CONNECT", MUST_CONNECT)
        if words[1] != b"/_goRPC_":
            raise HandshakeError("not the path of Go RPC", NOT_FOUND)
        self._head = None
        self.to_say = CONNECTED
        return bytes(head[end + (2 if head[end : end + 2] == b"\n\n" else 4) :])

    def arguments(self, call: RpcCall, kind: type[S]) -> S:
        """Decode the arguments of a call. Raise Mismatch if they are of another type."""
        return self._decoder.decode(call.body, kind)

    def answer(self, call: RpcCall, reply: msgspec.Struct) -> bytes:
        return self._encoder.encode(Response(call.method, call.seq)) + self._encoder.encode(reply)

    def refuse(self, call: RpcCall, error: str) -> bytes:
        header = Response(call.method, call.seq, error)
        return self._encoder.encode(header) + self._encoder.encode(_NO_BODY)


class ClientCodec:
    """The client's side of a connection."""

    def __init__(self) -> None:
        self._decoder = GobDecoder(MAX_ANSWER)
        self._encoder = Encoder()
        self._head: bytearray | None = bytearray()
        self._response: Response | None = None

    @property
    def is_connected(self) -> bool:
        """Return whether calls may be sent: Go's server loses bytes that arrive before it has answered the
        CONNECT."""
        return self._head is None

    def call(self, seq: int, method: str, arguments: msgspec.Struct) -> bytes:
        return self._encoder.encode(RpcRequest(method, seq)) + self._encoder.encode(arguments)

    def receive(self, data: bytes) -> list[RpcAnswer]:
        if self._head is not None:
            self._head += data
            end = self._head.find(b"\n\n")
            if end < 0:
                if len(self._head) > MAX_HEAD or b"\r\n\r\n" in self._head:
                    raise HandshakeError("no Go RPC there")
                return []
            if not self._head.startswith(b"HTTP/1.0 200 Connected to Go RPC"):
                raise HandshakeError("no Go RPC there")
            data = bytes(self._head[end + 2 :])
            self._head = None
        self._decoder.feed(data)
        answers = []
        while (message := self._decoder.next()) is not None:
            if self._response is None:
                self._response = self._decoder.decode(message, Response)
            else:
                answers.append(RpcAnswer(self._response.seq, self._response.error, message))
                self._response = None
        return answers

    def reply(self, answer: RpcAnswer, kind: type[S]) -> S:
        return self._decoder.decode(answer.body, kind)
