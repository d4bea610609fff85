"""A Python worker's connection to the store. Spark reuses workers, so a worker keeps its connection."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from nuncius.pipeline.errors import PipelineError
from nuncius.pipeline.place import CONNECT_SECONDS
from nuncius.store.address import shown
from nuncius.store.connecting import CONNECTING_ERRORS, TRANSIENT_ERRORS, connect_anywhere
from nuncius.store.driver import Connection
from nuncius.store.errors import StoreUnavailable
from nuncius.store.store import PLANS

APPLICATION = "spark sink"
PATIENCE = 30.0
PAUSE = 0.2

T = TypeVar("T")


class Link:
    """A connection that reconnects by itself, in its own event loop."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._runner = asyncio.Runner()
        self._connection: Connection | None = None

    def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do some repeatable work until it succeeds or the store is unreachable for too long."""
        return self._runner.run(self._repeat(work))

    async def _repeat(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return await work(await self._connected())
            except asyncpg.DataError as error:
                raise PipelineError(
                    f"the store refused a row, and with it all that came along: {error}"
                ) from error
            except (*CONNECTING_ERRORS, *TRANSIENT_ERRORS) as error:
                if time.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"the store at {shown(self._dsn)} has not answered for {PATIENCE:g} seconds: {error}"
                    ) from error
            await asyncio.sleep(PAUSE)

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect_anywhere(self._dsn, APPLICATION, PLANS, seconds=CONNECT_SECONDS)
        return self._connection


_links: dict[tuple[int, str], Link] = {}


def link(dsn: str) -> Link:
    """Return this process's link to a store. A forked process does not use its parent's link."""
    kept = _links.get((os.getpid(), dsn))
    if kept is None:
        kept = _links[os.getpid(), dsn] = Link(dsn)
    return kept
