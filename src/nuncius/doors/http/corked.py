"""A connection on which what is written in one turn of the loop leaves together.

uvicorn writes the head of an answer and its body one after the other, and each would be a system call; that
is a good part of what a small request costs.
"""

import asyncio
from typing import Any, cast


class _Corked:
    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)

    def _flush(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            if not self._transport.is_closing():  # the client may have gone meanwhile
                self._transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))

    def close(self) -> None:
        self._flush()
        self._transport.close()


def corked(transport: asyncio.Transport) -> asyncio.Transport:
    """The same connection with a cork."""
    return cast("asyncio.Transport", _Corked(transport))
