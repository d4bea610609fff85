"""The Lazy Pirate pattern: send a request again, on a new socket each time, until it is answered.

A REQ socket that waits for an answer can do nothing else, so one without an answer is closed. The protocol
above makes it harmless that a request may arrive twice.
"""

from collections.abc import Sequence

import zmq

from nuncius.client.errors import CannotConnect, InvalidInput


class NoAnswer(CannotConnect):
    """The broker did not answer within all tries."""


class LazyPirate:
    def __init__(self, url: str, timeout: float, tries: int) -> None:
        self._url = url
        self._timeout = timeout
        self._tries = tries
        self._context = zmq.Context(io_threads=1)
        self._socket: zmq.Socket[bytes] | None = None

    def ask(self, request: Sequence[bytes], patience: float = 0.0) -> tuple[list[bytes], int]:
        """Send a request until it is answered. Return the answer and how often the request was sent;
        `patience` is added to the timeout, in seconds."""
        milliseconds = int((self._timeout + patience) * 1000)
        for sent in range(1, self._tries + 1):
            try:
                socket = self._connected()
                socket.send_multipart(request)
                if socket.poll(milliseconds, zmq.POLLIN):
                    return socket.recv_multipart(), sent
            except BaseException:
                self._drop()
                raise
            self._drop()
        raise NoAnswer(
            f"no broker answers at {self._url} ({self._tries} tries of {self._timeout + patience:g} seconds)"
        )

    def close(self) -> None:
        self._drop()
        self._context.term()

    def _connected(self) -> "zmq.Socket[bytes]":
        if self._socket is None:
            socket = self._context.socket(zmq.REQ)
            socket.linger = 0
            socket.ipv6 = "[" in self._url  # not always: a name would then mean only an IPv6 address
            try:
                socket.connect(self._url)
            except zmq.ZMQError as error:
                socket.close()
                raise InvalidInput(
                    f"{self._url!r} is no address like tcp://127.0.0.1:5555 ({error})"
                ) from None
            self._socket = socket
        return self._socket

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
