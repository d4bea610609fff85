"""One store as a node sees it: combiners for the path of messages, a pool for everything else."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

import asyncpg

from nuncius.store import migrations
from nuncius.store.combiner import C, Combiner, Execute
from nuncius.store.driver import Connection, Pool
from nuncius.store.errors import CallFailed, OutcomeUnknown, StoreUnavailable
from nuncius.store.lane import CONNECTING_ERRORS, TRANSIENT_ERRORS, Lane, connect
from nuncius.store.pressure import BUDGET, Pressure

# A node's batches hold a lock for milliseconds; who holds it longer is somebody's transaction.
BATCH_LOCK_TIMEOUT = "20ms"
# The right plans are known, and must not depend on when a table was last analysed: a queue is empty one
# moment and long the next. Set on connections, because a procedure that sets them pays for it each call.
PLANS = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off"}
# A node relies on seeing what was committed before it got a lock, whatever is usual in the database.
ISOLATION = {"default_transaction_isolation": "read committed"}
POOL_SIZE = 8


def _nobody(name: str, seconds: float, calls: Sequence[Any], results: Sequence[Any]) -> None:
    """Observes nothing."""


class Store:
    def __init__(self, dsn: str, *, patience: float = 30.0, max_memory: int = BUDGET) -> None:
        self.dsn = dsn
        self.patience = patience
        self.pressure = Pressure(max_memory)
        self._pool: Pool | None = None
        self._combiners: list[Combiner[Any]] = []
        self.combiners: dict[str, Combiner[Any]] = {}
        """By name, for those who count."""
        self.observe: Callable[[str, float, Sequence[Any], Sequence[Any]], None] = _nobody
        """Learns of every batch: the combiner, the seconds it took, its calls and their results."""

    async def open(self) -> None:
        """Connects and brings the schema up to date."""
        await self._check()
        self._pool = await asyncpg.create_pool(
            self.dsn,
            connect=connect,
            min_size=0,  # asyncpg logs a traceback whenever it cannot keep up more
            max_size=POOL_SIZE,
            server_settings={"application_name": "nuncius pool", **ISOLATION},
        )

    async def _check(self) -> None:
        try:
            connection = await connect(self.dsn, timeout=10)
        except CONNECTING_ERRORS as error:
            raise StoreUnavailable(f"cannot connect to the store: {error}") from error
        try:
            await migrations.migrate(connection)
        finally:
            await connection.close()

    def combiner(
        self,
        name: str,
        execute: Execute[C],
        refresh: Callable[[Sequence[C]], Awaitable[None]] | None = None,
        ahead: Callable[[Sequence[C]], None] | None = None,
        order: Callable[[C], int] | None = None,
    ) -> Combiner[C]:
        """A combiner with a lane of its own."""
        combiner: Combiner[C] = Combiner(
            execute,
            lambda wait: self.lane(name, wait=wait),
            refresh=refresh,
            ahead=ahead,
            order=order,
            observe=partial(self.observe, name),
        )
        self._combiners.append(combiner)
        self.combiners[name] = combiner
        return combiner

    def lane(self, name: str, *, wait: bool = True) -> Lane:
        """A connection of one's own that repairs itself."""
        settings = {**PLANS, **ISOLATION}
        if not wait:
            settings["lock_timeout"] = BATCH_LOCK_TIMEOUT
        return Lane(self.dsn, name, patience=self.patience, settings=settings)

    async def query(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        """A read, or a write that may be repeated; tried again while the store is away."""
        rows: list[asyncpg.Record] = await self.run(
            lambda connection: connection.fetch(sql, *arguments), repeatable=True
        )
        return rows

    async def execute(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        """A write that must not be repeated."""
        rows: list[asyncpg.Record] = await self.run(
            lambda connection: connection.fetch(sql, *arguments), repeatable=False
        )
        return rows

    async def run(self, work: Callable[[Connection], Awaitable[Any]], *, repeatable: bool) -> Any:
        """Does some work on a pooled connection; work that may be repeated is, when its connection breaks."""
        assert self._pool is not None
        deadline = asyncio.get_running_loop().time() + self.patience
        broken = False  # a connection was, under the work
        while True:
            sent = False
            try:
                async with self._pool.acquire(timeout=self.patience) as connection:
                    sent = True
                    return await work(cast("Connection", connection))
            except asyncpg.DataError as error:
                raise CallFailed(str(error)) from error
            except TRANSIENT_ERRORS:
                pass  # undone: try again
            except CONNECTING_ERRORS as error:
                broken = broken or sent
                if sent and not repeatable:
                    raise OutcomeUnknown(
                        f"the connection to the store broke during the call ({error})"
                    ) from error
                if asyncio.get_running_loop().time() > deadline:
                    outcome = OutcomeUnknown if broken else StoreUnavailable
                    raise outcome(
                        f"the store has not answered for {self.patience:g} seconds ({error})"
                    ) from error
            await asyncio.sleep(0.1)

    async def drain(self) -> None:
        """Wait until everything accepted is answered."""
        for combiner in self._combiners:
            await combiner.drain()

    async def close(self) -> None:
        for combiner in self._combiners:
            await combiner.close()
        if self._pool is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await self._pool.close()
            self._pool.terminate()
