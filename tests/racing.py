"""Provoking races without sleeping: wait until something is seen to have happened."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from nuncius.store.driver import Connection

PATIENCE = 60.0
_GLANCE = 0.005


async def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Looks until the condition holds, and answers with what it said."""
    async with asyncio.timeout(seconds):
        while True:
            result = condition()
            if isinstance(result, Awaitable):
                result = await result
            if result:
                return result
            await asyncio.sleep(_GLANCE)


async def until_waiting(observer: Connection, *pids: int) -> None:
    """Returns when these backends stand in line for a lock."""

    async def all_wait() -> bool:
        waiting: int = await observer.fetchval(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and pid = any($1)",
            list(pids),
        )
        return waiting == len(pids)

    await until(all_wait)


async def until_somebody_waits(observer: Connection, name: str, count: int = 1) -> None:
    """Returns when so many backends of that application name stand in line for a lock."""

    async def enough_wait() -> bool:
        waiting: int = await observer.fetchval(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
            " and datname = current_database() and application_name like $1",
            name,
        )
        return waiting >= count

    await until(enough_wait)


async def backends(observer: Connection, name: str) -> list[int]:
    """The backends of this database with that application name."""
    rows = await observer.fetch(
        "select pid from pg_stat_activity where datname = current_database() and application_name like $1",
        name,
    )
    return [row["pid"] for row in rows]


async def terminate(observer: Connection, name: str) -> int:
    """Ends the backends with that application name; answers how many there were, and are no more."""
    ended = await backends(observer, name)
    await observer.execute("select pg_terminate_backend(pid) from unnest($1::int[]) pid", ended)
    gone = "select not exists (select from pg_stat_activity where pid = any($1))"
    await until(lambda: observer.fetchval(gone, ended))
    return len(ended)
