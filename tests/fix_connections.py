"""Fixtures for further connections to the test's database."""

from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from nuncius.store.driver import Connection

Connect = Callable[[], Awaitable[Connection]]


@pytest.fixture
async def connect(dsn: str) -> AsyncIterator[Connect]:
    """Opens another connection to the test's database; all are closed afterwards."""
    opened: list[Connection] = []

    async def another() -> Connection:
        opened.append(await asyncpg.connect(dsn))
        return opened[-1]

    yield another
    for connection in opened:
        if not connection.is_closed():
            connection.terminate()


@pytest.fixture
async def other(connect: Connect) -> Connection:
    """A second connection to the test's database."""
    return await connect()


@pytest.fixture
async def observer(connect: Connect) -> Connection:
    """A connection that looks at what the others do."""
    return await connect()
