"""A connection to a store for commands that look after it, rather than for messages."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from nuncius.store.driver import Connection
from nuncius.store.errors import StoreUnavailable
from nuncius.store.lane import CONNECTION_ERRORS

CONNECT_SECONDS = 10
_REFUSALS: tuple[type[Exception], ...] = (*CONNECTION_ERRORS, asyncpg.PostgresError)


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[Connection]:
    try:
        connection = await asyncpg.connect(
            dsn, timeout=CONNECT_SECONDS, server_settings={"application_name": "nuncius command"}
        )
    except TimeoutError as error:
        raise StoreUnavailable(
            f"cannot connect to the store: no answer within {CONNECT_SECONDS} seconds"
        ) from error
    except _REFUSALS as error:
        raise StoreUnavailable(f"cannot connect to the store: {error}") from error
    try:
        yield connection
    finally:
        await connection.close()
