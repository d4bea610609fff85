"""The choice of the store, and a connection to it for synchronous code.

Spark runs the driver's side of a source in plain Python processes; users run our code in notebooks, whose
thread already has an event loop. So a connection here has its own thread.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from nuncius.pipeline.errors import InvalidOption, PipelineError
from nuncius.store import environment
from nuncius.store.address import shown
from nuncius.store.driver import Connection
from nuncius.store.errors import StoreUnavailable
from nuncius.store.queries import query
from nuncius.store.server import embedded

CONNECT_SECONDS = 10.0
APPLICATION = "nuncius pipeline"
_SCHEMES = ("postgresql://", "postgres://")
_REFUSALS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)

_EXCLUDE = query("jobs", "exclude")

T = TypeVar("T")


def option(options: Mapping[str, str], name: str) -> str | None:
    """Return an option by its name, ignoring case; an empty one counts as not given."""
    wanted = name.lower()
    for given, value in options.items():
        if given.lower() == wanted:
            return str(value) or None
    return None


def store_dsn(options: Mapping[str, str]) -> str:
    """Choose the store: option `store`, or the embedded server of option `dataDir`, or NUNCIUS_STORE, or the
    embedded server of NUNCIUS_DATA_DIR or of the default directory."""
    store, data_dir = option(options, "store"), option(options, "dataDir")
    if store and data_dir:
        raise InvalidOption("give the store's address ('store') or a data directory ('dataDir'), not both")
    if data_dir:
        server = embedded.running(Path(data_dir))
        if server is None:
            raise InvalidOption(
                f"no server runs in the data directory {data_dir!r}: start it with "
                "'nuncius up --data-dir DIR', or give the store's address as option 'store'"
            )
        return server.dsn
    dsn = store or environment.value(environment.STORE) or _default()
    if not dsn.startswith(_SCHEMES):
        raise InvalidOption("a store's address begins with postgresql://")
    return dsn


def _default() -> str:
    directory = environment.default_data_dir()
    server = embedded.running(directory)
    if server is None:
        raise InvalidOption(
            "which store? Give option 'store' (postgresql://...) or 'dataDir', "
            f"or set {environment.STORE} in the environment: no server runs in {directory}"
        )
    return server.dsn


class Database:
    """A connection for synchronous code. Every statement is its own transaction."""

    def __init__(self, dsn: str) -> None:
        with ExitStack() as stack:
            self._thread = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="nuncius-store"))
            self._runner = asyncio.Runner()
            stack.callback(lambda: self._thread.submit(self._runner.close).result())
            self._connection = self._run(_connect(dsn))
            stack.callback(lambda: self._run(_close(self._connection)))
            self.close = stack.pop_all().close

    def rows(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        """Return all rows of a statement."""
        return self._run(self._connection.fetch(sql, *arguments))

    def row(self, sql: str, *arguments: Any) -> asyncpg.Record | None:
        """Return the first row of a statement, or None."""
        return self._run(self._connection.fetchrow(sql, *arguments))

    def value(self, sql: str, *arguments: Any) -> Any:
        """Return the first column of the first row of a statement, or None."""
        return self._run(self._connection.fetchval(sql, *arguments))

    def execute(self, sql: str, *arguments: Any) -> str:
        """Execute a statement (without arguments: several). Return the last one's command tag."""
        return self._run(self._connection.execute(sql, *arguments))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.submit(self._runner.run, work).result()


def connect(dsn: str) -> closing[Database]:
    """Open a connection for as long as the context lasts."""
    return closing(Database(dsn))


@contextmanager
def alone(dsn: str, lock: int, busy: PipelineError) -> Iterator[Database]:
    """Open a connection that holds the lock of this number. Raise `busy` if another one holds it."""
    with connect(dsn) as database:
        if not database.value(_EXCLUDE, lock):
            raise busy
        yield database  # the lock goes with the connection


async def _connect(dsn: str) -> Connection:
    try:
        return await asyncpg.connect(
            dsn, timeout=CONNECT_SECONDS, server_settings={"application_name": APPLICATION}
        )
    except TimeoutError as error:
        raise StoreUnavailable(
            f"the store at {shown(dsn)} did not answer within {CONNECT_SECONDS:g} seconds"
        ) from error
    except ValueError as error:
        raise InvalidOption(f"the store's address {shown(dsn)} cannot be understood: {error}") from error
    except _REFUSALS as error:
        raise StoreUnavailable(f"cannot connect to the store at {shown(dsn)}: {error}") from error


async def _close(connection: Connection) -> None:
    try:
        await connection.close(timeout=CONNECT_SECONDS)
    except (*_REFUSALS, TimeoutError):
        connection.terminate()
