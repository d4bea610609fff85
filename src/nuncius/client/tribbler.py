"""A small synchronous client of the Tribbler services.

It speaks Go's JSON-RPC, which every node of a ring understands besides gob: a request is an object with a
number, its answer has the same number; answers come in any order, many requests are in flight at once.
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
    """The service refused a call, or could not perform it."""


class TribblerClient:
    """A connection to one node, which reaches every key. Close it, or use it in a `with` block."""

    def __init__(self, address: str, *, timeout: float = 30.0, in_flight: int = IN_FLIGHT) -> None:
        """Connect to a node. `in_flight` limits how many calls of `call_many` are open at once."""
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
        """Call a method and return its reply."""
        (reply,) = self.call_many(method, [argument])
        return reply

    def call_many(self, method: str, arguments: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Call a method for each argument, many calls in flight at once. Yields the replies in the order of
        the calls."""
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
        """Close the connection."""
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
