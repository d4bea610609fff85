"""A lane: one connection to the store that repairs itself.

A combiner has one call in flight at a time, so it needs one connection, always the same one: statements
stay prepared, and nobody waits behind somebody else's slow query. When the server goes away the lane
connects again in the background; callers wait for it, up to a limit counted from the moment it was lost.
"""

import asyncio
import contextlib
import logging
from typing import Any

import asyncpg

from nuncius.store.driver import Connection
from nuncius.store.errors import StoreUnavailable

log = logging.getLogger(__name__)

# What a dead or dying connection looks like. A failed statement is none of these.
CONNECTION_ERRORS: tuple[type[Exception], ...] = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,  # the server is shutting down, starting up or was told to drop us
    asyncpg.TooManyConnectionsError,
)
# The server undid the transaction and asks to try again.
TRANSIENT_ERRORS: tuple[type[Exception], ...] = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
)

# The same, and a connection attempt that takes too long.
CONNECTING_ERRORS: tuple[type[Exception], ...] = (*CONNECTION_ERRORS, TimeoutError)

# A server that lets nobody into the database: while it is restored under another name, say.
_REFUSALS: tuple[type[Exception], ...] = (
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.ObjectNotInPrerequisiteStateError,
)

RECONNECT_SECONDS = 0.2


async def connect(*arguments: Any, **options: Any) -> Connection:
    """As the driver does it, but who is not let in learns of it like one whom nobody answers."""
    try:
        return await asyncpg.connect(*arguments, **options)
    except _REFUSALS as error:
        raise ConnectionRefusedError(str(error)) from error


class Lane:
    def __init__(
        self, dsn: str, name: str, *, patience: float, settings: dict[str, str] | None = None
    ) -> None:
        self._dsn = dsn
        self._name = name
        self._patience = patience
        self._settings = {"application_name": f"nuncius {name}", **(settings or {})}
        self._connection: Connection | None = None
        self._restored = asyncio.Event()
        self._lost_at = 0.0
        self._connector: asyncio.Task[None] | None = None

    async def connection(self) -> Connection:
        """The live connection; waits while it is being restored."""
        connection = self._connection
        if connection is not None and not connection.is_closed():
            return connection
        loop = asyncio.get_running_loop()
        if self._connector is None or self._connector.done():
            self._restored.clear()
            self._lost_at = loop.time()
            self._connector = loop.create_task(self._connect())
        left = self._lost_at + self._patience - loop.time()
        try:
            async with asyncio.timeout(max(left, 0)):
                await self._restored.wait()
        except TimeoutError:
            raise StoreUnavailable(
                f"the store has not answered for {self._patience:g} seconds; nothing was stored"
            ) from None
        assert self._connection is not None
        return self._connection

    def discard(self) -> None:
        """Forget a connection that failed."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        if self._connector is not None:
            self._connector.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._connector
        if self._connection is not None:
            with contextlib.suppress(*CONNECTING_ERRORS):
                await self._connection.close(timeout=2)
            self._connection = None

    async def _connect(self) -> None:
        complained = False
        while True:
            try:
                self._connection = await connect(self._dsn, server_settings=self._settings, timeout=10)
            except CONNECTING_ERRORS as error:
                if not complained:
                    complained = True
                    log.warning("store unreachable", extra={"lane": self._name, "error": str(error)})
                await asyncio.sleep(RECONNECT_SECONDS)
            else:
                if complained:
                    log.warning("store reachable again", extra={"lane": self._name})
                self._restored.set()
                return
