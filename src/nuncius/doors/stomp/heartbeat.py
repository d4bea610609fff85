"""Heart-beats, agreed by two numbers from each side: how often it can send them, and wants to receive them.

A client counts as dead if nothing arrived for twice the agreed interval, while the node was reading.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from nuncius.doors.stomp.background import Background
from nuncius.doors.stomp.carrier import Carrier
from nuncius.doors.stomp.frames.versions import StompError

MINIMUM_MS = 1000
BEAT = b"\n"
EARLY = 0.8  # of the agreed interval, because a timer may be late
MISSED = 2
_MOST_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Intervals in milliseconds; 0 means never."""

    send: int
    receive: int


def agree(wish: str | None, minimum: int) -> Rhythm:
    """Negotiate a rhythm with a client's `heart-beat` header; the node can send and wants one every `minimum`
    milliseconds."""
    if wish is None:
        return Rhythm(0, 0)
    words = [word.strip() for word in wish.split(",")]
    if len(words) != 2 or not all(w.isascii() and w.isdecimal() and len(w) <= 18 for w in words):
        raise StompError("heart-beat is two numbers of milliseconds, with a comma between them")
    can, wants = (min(int(word), _MOST_MS) for word in words)
    return Rhythm(max(wants, minimum) if wants else 0, max(can, minimum) if can else 0)


class HeartBeat:
    def __init__(
        self,
        rhythm: Rhythm,
        carrier: Carrier,
        background: Background,
        is_busy: Callable[[], bool],
        died: Callable[[], None],
    ) -> None:
        self._rhythm = rhythm
        self._carrier = carrier
        self._background = background
        self._is_busy = is_busy
        self._died = died
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._missed = 0
        self._is_over = False
        self.heard = False
        """Set by the session when bytes arrive."""

    def start(self) -> None:
        if self._rhythm.send:
            self._send_later()
        if self._rhythm.receive:
            self._listen()

    def stop(self) -> None:
        self._is_over = True
        for timer in self._timers.values():
            timer.cancel()

    def _send_later(self) -> None:
        self._timers["send"] = self._loop.call_later(self._rhythm.send * EARLY / 1000, self._send)

    def _send(self) -> None:
        self._carrier.send(BEAT)
        self._send_later()

    def _listen(self) -> None:
        if not self._is_over:
            self._timers["receive"] = self._loop.call_later(self._rhythm.receive / 1000, self._check)

    def _check(self) -> None:
        self._missed = 0 if self.heard or self._is_busy() else self._missed + 1
        self.heard = False
        if self._missed < MISSED:
            self._listen()
        else:
            self._background.start(self._bury())

    async def _bury(self) -> None:
        """Report the client as dead, unless it does not read: then the node was not reading either, and
        starts over."""
        try:
            async with asyncio.timeout(0):
                await self._carrier.writable()
        except TimeoutError:
            await self._carrier.writable()
            self._missed = 0
            self._listen()
        else:
            if not self._is_over:
                self._died()
