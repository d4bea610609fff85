"""A connection to a store, for administrative commands."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nuncius.store.connecting import CONNECTING_ERRORS
from nuncius.store.connector import Connector
from nuncius.store.driver import Connection
from nuncius.store.errors import StoreUnavailable


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[Connection]:
    """Connect to a store that accepts writes. The connection breaks if the store stops responding."""
    connector = Connector(dsn)
    await connector.open()
    try:
        connection = await connector.connect("command")
        try:
            yield connection
        finally:
            await connection.close()
    except CONNECTING_ERRORS as error:
        raise StoreUnavailable(f"the connection to the store broke: {error}") from error
    finally:
        await connector.close()
