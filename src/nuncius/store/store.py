"""One store as a node sees it: combiners for the path of messages, a pool for everything else."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from operator import methodcaller
from typing import Any, cast

import asyncpg

from nuncius.store import migrations
from nuncius.store.combiner.combiner import C, Combiner, Execute, Observe, not_observed
from nuncius.store.combiner.lane import Lane, not_answered
from nuncius.store.connecting import CONNECTING_ERRORS, TRANSIENT_ERRORS, set_all
from nuncius.store.connector import SILENCE_SECONDS, Connector
from nuncius.store.driver import Connection, Pool
from nuncius.store.errors import CallFailed, OutcomeUnknown, StoreUnavailable
from nuncius.store.pressure import BUDGET, Pressure
from nuncius.store.queries import procedure

# A node's batches hold a lock for milliseconds; only a client's or application's transaction holds it longer.
BATCH_LOCK_TIMEOUT = "20ms"
# The right plans are known, and must not depend on when a table was last analysed: a queue is empty one
# moment and long the next. Set on connections, because in a procedure the setting costs time at each call.
PLANS = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off"}
# A node must see what was committed before it got a lock, whatever the database's default is.
ISOLATION = {"default_transaction_isolation": "read committed"}
# A call on a pooled connection opens no cursor and does not listen; it might leave a lock or a setting.
RESET = f"select pg_advisory_unlock_all(); reset all; {set_all(ISOLATION)}"
POOL_SIZE = 8


class Store:
    def __init__(
        self,
        dsn: str,
        *,
        patience: float = 30.0,
        silence: float = SILENCE_SECONDS,
        max_memory: int = BUDGET,
    ) -> None:
        """Prepare a store. Callers wait `patience` seconds for a store that is away; a server that is silent
        for `silence` seconds counts as away."""
        self.dsn = dsn
        self.patience = patience
        self.silence = silence
        self.pressure = Pressure(max_memory)
        self._connector = Connector(dsn, silence=silence)
        self._pool: Pool | None = None
        self._combiners: dict[str, Combiner[Any]] = {}
        self._lanes: list[Lane] = []
        self._companions: list[Store] = []
        self.observer: Callable[[str], Observe] = lambda name: not_observed
        """Called for every new combiner with its name. Returns what the combiner calls after each batch."""

    async def open(self) -> None:
        """Connect, and bring the schema up to date."""
        await self._connector.open()
        try:
            await self._migrate()
            self._pool = await asyncpg.create_pool(
                self.dsn,
                connect=self._connect,
                # Undo what a call did to its connection, except the settings that all of the pool have.
                reset=methodcaller("execute", RESET),
                min_size=0,  # with more, asyncpg logs a traceback whenever it cannot keep them open
                max_size=POOL_SIZE,
            )
        except BaseException:
            await self._connector.close()
            raise

    async def _connect(self, *_: Any, **__: Any) -> Connection:
        """Open a connection for the pool. Ignore the pool's arguments: the connector knows the server."""
        return await self._connector.connect("pool", ISOLATION)

    async def _migrate(self) -> None:
        try:
            connection = await self._connector.connect("migrations", ISOLATION)
            try:
                await migrations.migrate(connection)
            finally:
                await connection.close()
        except CONNECTING_ERRORS as error:
            raise StoreUnavailable(f"cannot connect to the store: {error}") from error

    async def connect_lanes(self) -> None:
        """Connect every lane. Raise StoreUnavailable if the server does not grant all these connections."""
        await asyncio.gather(*(lane.connection() for lane in self._lanes))

    def problem(self) -> str:
        """Return why some work of this store or its companions is blocked; empty if none is."""
        lost = [lane.name for lane in self._lanes if lane.is_lost]
        here = self._connector.problem or (f"no connection for {', '.join(lost)}" if lost else "")
        return "; ".join(filter(None, [here, *(each.problem() for each in self._companions)]))

    def take_along(self, companion: "Store") -> None:
        """Give up another store of the same node together with this one."""
        self._companions.append(companion)

    def give_up(self) -> None:
        """Refuse all calls that wait for the store, now and later, because the node ends."""
        self._connector.give_up()
        for each in self._companions:
            each.give_up()

    def combiner(
        self,
        name: str,
        execute: Execute[C],
        refresh: Callable[[Sequence[C]], Awaitable[None]] | None = None,
        ahead: Callable[[Sequence[C]], None] | None = None,
        order: Callable[[C], int] | None = None,
    ) -> Combiner[C]:
        """Create a combiner with a lane of its own."""
        combiner: Combiner[C] = Combiner(
            execute,
            # A detour does not last: only the lane of the batches belongs to the store.
            lambda wait: self._lane(name, wait) if wait else self.lane(name, wait=False),
            refresh=refresh,
            ahead=ahead,
            order=order,
            observe=self.observer(name),
        )
        self._combiners[name] = combiner
        return combiner

    def lane(self, name: str, *, wait: bool = True) -> Lane:
        """Create a dedicated connection that reconnects by itself as long as the store is open."""
        lane = self._lane(name, wait)
        self._lanes.append(lane)
        return lane

    def _lane(self, name: str, wait: bool) -> Lane:
        settings = {**PLANS, **ISOLATION}
        if not wait:
            settings["lock_timeout"] = BATCH_LOCK_TIMEOUT
        return Lane(self._connector, name, patience=self.patience, settings=settings)

    async def query(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run a read, or a write that may be repeated. Try again while the store is away."""
        rows: list[asyncpg.Record] = await self.run(
            lambda connection: connection.fetch(sql, *arguments), repeatable=True
        )
        return rows

    async def execute(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run a write that must not be repeated."""
        rows: list[asyncpg.Record] = await self.run(
            lambda connection: connection.fetch(sql, *arguments), repeatable=False
        )
        return rows

    async def call(self, name: str, *arguments: Any) -> list[asyncpg.Record]:
        """Call a procedure that reads, or that may be repeated."""
        return await self.query(procedure(name, len(arguments)), *arguments)

    async def call_once(self, name: str, *arguments: Any) -> list[asyncpg.Record]:
        """Call a procedure that must not be repeated."""
        return await self.execute(procedure(name, len(arguments)), *arguments)

    async def run(self, work: Callable[[Connection], Awaitable[Any]], *, repeatable: bool) -> Any:
        """Do some work on a pooled connection. If the connection breaks, repeat repeatable work."""
        assert self._pool is not None
        deadline = asyncio.get_running_loop().time() + self.patience
        broken = False  # a connection broke during the work
        while True:
            sent = False
            try:
                async with self._pool.acquire(timeout=self.patience) as connection:
                    sent = True
                    return await _done(work, cast("Connection", connection))
            except asyncpg.DataError as error:
                raise CallFailed(str(error)) from error
            except TRANSIENT_ERRORS:
                pass  # undone: try again
            except CONNECTING_ERRORS as error:
                # A server that accepts no writes has done nothing.
                sent = sent and not isinstance(error, asyncpg.ReadOnlySQLTransactionError)
                broken = broken or sent
                if sent and not repeatable:
                    raise OutcomeUnknown(
                        f"the connection to the store broke during the call ({error})"
                    ) from error
                if asyncio.get_running_loop().time() > deadline:
                    problem = self._connector.problem or str(error)
                    if broken:
                        raise OutcomeUnknown(
                            f"the store has not answered for {self.patience:g} seconds ({problem})"
                        ) from error
                    raise not_answered(self.patience, problem) from error
            await asyncio.sleep(0.1)

    def batches(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of batches and of rows in them so far, by combiner."""
        return {name: (each.batches, each.rows) for name, each in self._combiners.items()}

    async def drain(self) -> None:
        """Wait until everything accepted is answered."""
        for combiner in self._combiners.values():
            await combiner.drain()

    async def close(self) -> None:
        for combiner in self._combiners.values():
            await combiner.close()
        if self._pool is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await self._pool.close()
            self._pool.terminate()
        await self._connector.close()


async def _done(work: Callable[[Connection], Awaitable[Any]], connection: Connection) -> Any:
    try:
        return await work(connection)
    except asyncpg.ReadOnlySQLTransactionError:
        connection.terminate()  # the next connection is to a server that accepts writes
        raise
