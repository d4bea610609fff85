"""A Python worker's connection to the store. Spark reuses workers, so a worker keeps its connection."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TypeVar

import asyncpg

from nuncius.pipeline import patience
from nuncius.pipeline.errors import PipelineError
from nuncius.pipeline.place import CONNECT_SECONDS
from nuncius.store.address import shown
from nuncius.store.connecting import CONNECTING_ERRORS, TRANSIENT_ERRORS, connect_anywhere
from nuncius.store.driver import Connection
from nuncius.store.errors import StoreUnavailable
from nuncius.store.store import PLANS

APPLICATION = "spark sink"
_BROKEN = (*CONNECTING_ERRORS, *TRANSIENT_ERRORS)

T = TypeVar("T")


class SinkLink:
    """A connection that reconnects by itself, in its own event loop."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._runner = asyncio.Runner()
        self._connection: Connection | None = None

    def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do some repeatable work until it succeeds or the store is unreachable for too long."""
        try:
            return patience.patiently(lambda: self._runner.run(self._try(work)), _BROKEN, lambda: None)
        except asyncpg.DataError as error:
            raise PipelineError(
                f"the store refused a row, and with it all that came along: {error}"
            ) from error
        except _BROKEN as error:
            raise StoreUnavailable(
                f"the store at {shown(self._dsn)} has not answered for {patience.PATIENCE:g} seconds: {error}"
            ) from error

    async def _try(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect_anywhere(self._dsn, APPLICATION, PLANS, seconds=CONNECT_SECONDS)
        return await work(self._connection)


def link(dsn: str) -> SinkLink:
    """Return this process's link to a store. A forked process does not use its parent's link."""
    return _link(os.getpid(), dsn)


@cache
def _link(_: int, dsn: str) -> SinkLink:
    return SinkLink(dsn)
