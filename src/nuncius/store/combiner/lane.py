"""A lane: one connection to the store that reconnects by itself.

A combiner has one call in flight at a time, so it needs one connection, always the same one: statements
stay prepared, and no call waits behind a slow query of other work. When the server goes away the lane
reconnects in the background; callers wait for it, up to a limit counted from the moment the server was lost
or fell silent.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from nuncius.store.connecting import CONNECTING_ERRORS
from nuncius.store.connector import RECONNECT_SECONDS, Connector
from nuncius.store.driver import Connection
from nuncius.store.errors import StoreUnavailable

log = logging.getLogger(__name__)


class Lane:
    def __init__(
        self,
        connector: Connector,
        name: str,
        *,
        patience: float,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._connector = connector
        self._patience = patience
        self._settings = settings
        self.live: Connection | None = None
        """The connection, if there is one; it may have closed since."""
        self._connecting: asyncio.Task[None] | None = None
        self._lost_at = 0.0
        self._problem = ""
        self._refusal: StoreUnavailable | None = None

    @property
    def is_lost(self) -> bool:
        """Return True if the lane has no connection although one was requested."""
        return self._connecting is not None and not self._connecting.done()

    async def connection(self) -> Connection:
        """Return the live connection. Wait while it is being restored."""
        if self.live is not None and not self.live.is_closed():
            return self.live
        loop = asyncio.get_running_loop()
        if self._connecting is None or self._connecting.done():
            self.discard()
            self._lost_at = self._connector.away_since or loop.time()
            self._connecting = loop.create_task(self._connect())
        left = self._lost_at + self._patience - loop.time()
        await asyncio.wait([self._connecting], timeout=max(left, 0))
        if self.live is None:
            raise self._refusal or not_answered(self._patience, self._connector.problem or self._problem)
        return self.live

    def discard(self) -> None:
        """Forget a connection that failed."""
        if self.live is not None:
            self.live.terminate()
            self.live = None

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._connecting
        if self.live is not None:
            with contextlib.suppress(*CONNECTING_ERRORS):
                await self.live.close(timeout=2)
            self.live = None

    async def _connect(self) -> None:
        complained = False
        while True:
            try:
                self.live = await self._connector.connect(self.name, self._settings)
            except StoreUnavailable as error:
                self._refusal = error
                return
            except CONNECTING_ERRORS as error:
                self._problem = str(error)
                if not complained:
                    complained = True
                    log.warning("store unreachable", extra={"lane": self.name, "error": self._problem})
                await asyncio.sleep(RECONNECT_SECONDS)
            else:
                if complained:
                    log.warning("store reachable again", extra={"lane": self.name})
                return


def not_answered(seconds: float, problem: str) -> StoreUnavailable:
    """Return the error for a caller that has waited long enough, with the server's message, if any."""
    reason = f" ({problem})" if problem else ""
    return StoreUnavailable(f"the store has not answered for {seconds:g} seconds{reason}; nothing was stored")
