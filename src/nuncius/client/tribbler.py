"""A small client of the Tribbler services, for programs that are not asynchronous.

It speaks Go's JSON-RPC, which every node of a ring understands besides gob: a question is an object with a
number, an answer is one with the same number, in any order, many under way at once.
"""

import socket
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from nuncius.client.errors import CannotConnect, NunciusError

PORT = 9009
IN_FLIGHT = 256
READ = 1 << 16


class CallFailed(NunciusError):
    """The service refused a call, or could not carry it out."""


class TribblerClient:
    """A connection to one node; it reaches every key. To be closed, or used as a context."""

    def __init__(self, address: str, *, timeout: float = 30.0, in_flight: int = IN_FLIGHT) -> None:
        """`in_flight` is how many calls of `call_many` are under way at once."""
        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            host, port = address, str(PORT)
        try:
            self._socket = socket.create_connection((host or "127.0.0.1", int(port)), timeout)
        except OSError as error:
            raise CannotConnect(f"cannot connect to {address}: {error.strerror or error}") from error
        self._in_flight = in_flight
        self._answers = self._read()
        self._sent = 0

    def call(self, method: str, argument: Mapping[str, Any]) -> dict[str, Any]:
        """One call and its reply."""
        (reply,) = self.call_many(method, [argument])
        return reply

    def call_many(self, method: str, arguments: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Many calls of a method, many under way at once; the replies, in the order of the calls."""
        replies: dict[int, dict[str, Any]] = {}
        next_reply = self._sent
        pending = iter(arguments)
        more = True
        while more or next_reply < self._sent:
            batch: list[bytes] = []
            while more and self._sent - next_reply + len(batch) < self._in_flight:
                argument = next(pending, None)
                if argument is None:
                    more = False
                else:
                    question = {"method": method, "params": [argument], "id": self._sent + len(batch)}
                    batch.append(msgspec.json.encode(question) + b"\n")
            self._send(b"".join(batch))
            self._sent += len(batch)
            while next_reply < self._sent and next_reply not in replies:
                number, reply = next(self._answers)
                replies[number] = reply
            while next_reply in replies:
                yield replies.pop(next_reply)
                next_reply += 1

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> "TribblerClient":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise NunciusError(f"the connection broke: {error}") from error

    def _read(self) -> Iterator[tuple[int, dict[str, Any]]]:
        rest = b""
        while True:
            try:
                data = self._socket.recv(READ)
            except OSError as error:
                raise NunciusError(f"no answer came: {error}") from error
            if not data:
                raise NunciusError("the node closed the connection before it answered")
            *lines, rest = (rest + data).split(b"\n")
            for line in filter(None, lines):
                answer = msgspec.json.decode(line)
                if answer.get("error") is not None:
                    raise CallFailed(str(answer["error"]))
                yield answer["id"], answer["result"]
