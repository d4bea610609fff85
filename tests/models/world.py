"""Several brokers on one database for a state machine, which runs in plain functions."""

import asyncio
import itertools
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import asyncpg
from hypothesis import HealthCheck, Phase, settings

from nuncius.broker import Broker
from nuncius.broker.limits import Limits
from nuncius.store.driver import Connection

T = TypeVar("T")

SETTINGS = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)


class World:
    """Brokers that share a database, a connection beside them, and the loop they live in."""

    def __init__(self, loop: asyncio.AbstractEventLoop, brokers: list[Broker], sql: Connection) -> None:
        self._loop = loop
        self._numbers = itertools.count(1)
        self.brokers = brokers
        self.sql = sql

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(60):
                return await work

        return self._loop.run_until_complete(bounded())

    def name(self, kind: str) -> str:
        """A name that nobody has had."""
        return f"{kind} {next(self._numbers)}"


@contextmanager
def world(dsn: str, nodes: int, limits: Limits | None = None) -> Iterator[World]:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        brokers = [Broker(dsn, limits=limits) for _ in range(nodes)]
        for broker in brokers:
            loop.run_until_complete(broker.start())
            loop.run_until_complete(broker.duties.close())  # they are steps of a model, and happen only then
        sql: Connection = loop.run_until_complete(asyncpg.connect(dsn))
        try:
            yield World(loop, brokers, sql)
        finally:
            loop.run_until_complete(sql.close())
            for broker in brokers:
                loop.run_until_complete(broker.close())
