"""The client's end of a TCP connection: packets in, packets out, one write per turn of the loop."""

import asyncio
from collections.abc import Callable
from typing import cast

from nuncius.wire import codec as native
from nuncius.wire.packets import Packet


class ClientLink(asyncio.Protocol):
    def __init__(self, on_packet: Callable[[Packet], None], on_lost: Callable[["ClientLink"], None]) -> None:
        self._on_packet = on_packet
        self._on_lost = on_lost
        self._decoder = native.answers()
        self._out: list[bytes] = []
        self._lost = False

    def send(self, packet: Packet) -> None:
        if self._lost:
            return
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(native.encode(packet))

    def pause(self) -> None:
        if not self._lost:
            self._transport.pause_reading()

    def resume(self) -> None:
        if not self._lost:
            self._transport.resume_reading()

    def close(self) -> None:
        if not self._lost:
            self.flush()
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it
        self._transport.write(native.MAGIC)

    def data_received(self, data: bytes) -> None:
        broken = False
        try:
            packets = self._decoder.receive(data)
        except native.ProtocolError as error:
            packets, broken = error.before, True
        for packet in packets:
            if not isinstance(packet, native.Unreadable):
                self._on_packet(packet)
        if broken:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self._on_lost(self)

    def flush(self) -> None:
        """Send now what would be sent at the end of the turn."""
        if self._out and not self._lost:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._transport.write(data)
