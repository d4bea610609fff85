"""A store as a node sees it: work that is repeated, and what is said when that does not help."""

from collections.abc import AsyncIterator

import pytest

from fix_store import let_in
from nuncius.store.driver import Connection
from nuncius.store.errors import OutcomeUnknown, StoreUnavailable
from nuncius.store.store import Store


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[Store]:
    """One that does not wait long."""
    opened = Store(dsn, patience=0.1)
    await opened.open()
    yield opened
    await opened.close()


async def break_off(connection: Connection) -> None:
    """Work under which every connection breaks."""
    await connection.execute("select pg_terminate_backend(pg_backend_pid())")


async def test_work_is_repeated(store: Store) -> None:
    """Work that may be repeated is done again when its connection breaks, and its result is that of the last
    time."""
    store.patience = 60
    attempts = 0

    async def work(connection: Connection) -> int:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            await break_off(connection)
        return attempts

    assert await store.run(work, repeatable=True) == 2


@pytest.mark.parametrize("repeatable", [True, False])
async def test_work_that_may_have_been_done(store: Store, *, repeatable: bool) -> None:
    """Where a connection broke under the work, nobody is told that nothing was stored."""
    with pytest.raises(OutcomeUnknown):
        await store.run(break_off, repeatable=repeatable)


async def test_work_that_was_not_begun(store: Store) -> None:
    """While nobody is let into the database the store is away, and nothing was stored."""
    let_in(store.dsn, may=False)
    for may in (True, False):
        with pytest.raises(StoreUnavailable, match="not currently accepting connections"):
            await store.run(break_off, repeatable=may)
    with pytest.raises(StoreUnavailable, match="cannot connect"):
        await Store(store.dsn).open()
    let_in(store.dsn, may=True)
    assert (await store.query("select 1"))[0][0] == 1
