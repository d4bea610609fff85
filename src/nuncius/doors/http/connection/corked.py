"""Write once per turn of the loop, and count the bytes.

uvicorn writes the head and the body of an answer separately, and each write would be a system call; that is a
good part of the cost of a small request.
"""

import asyncio
from typing import Any

from nuncius.broker.footprint import LARGE, NO_TRANSPORT, SMALL, Footprint


class Corked:
    """`footprint` is set by the connection."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._has_large = False
        self.footprint: Footprint
        self.bytes_out = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        if len(data) > LARGE:
            self._has_large = True
            self.footprint.sent(len(data))

    def _flush(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        is_large, self._has_large = self._has_large, False
        if self._transport.is_closing():  # the client may have gone meanwhile
            return
        written = len(waiting[0]) if len(waiting) == 1 else sum(map(len, waiting))
        self.bytes_out += written
        if len(waiting) == 1:
            self._transport.write(waiting[0])
        elif is_large:
            self._transport.writelines(waiting)
        else:
            self._transport.write(b"".join(waiting))
        if written > SMALL or self.footprint.unread:
            self.footprint.measure()

    def end(self) -> None:
        """Release the transport of a lost connection."""
        self.footprint.end()
        self._waiting.clear()
        self._transport = NO_TRANSPORT

    def is_closing(self) -> bool:  # asked with every request: not by way of __getattr__
        return self._transport.is_closing()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._waiting.clear()
        self._transport.abort()
