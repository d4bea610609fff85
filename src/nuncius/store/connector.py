"""The connector: finds the server of a store, watches it, and makes all connections of the store to it.

One connection, the heartbeat, asks the server once a second whether it accepts writes. While it does, any
other call may take as long as it needs: it waits for a lock, or has much to do. When the server is silent for
too long, or accepts no writes any more, the store looks for a server again, at all hosts of its address, and
breaks off all connections to the old one. So calls need no deadlines of their own. Why:
docs/decisions/0015-heartbeat.md.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

import asyncpg

from nuncius.store.connecting import (
    ACCEPTS_WRITES,
    CONNECTING_ERRORS,
    Host,
    connect,
    hosts,
    refuse_transaction_pooling,
)
from nuncius.store.driver import Connection
from nuncius.store.errors import StoreUnavailable

log = logging.getLogger(__name__)

SILENCE_SECONDS = 10.0
HEARTBEAT_SECONDS = 1.0
RECONNECT_SECONDS = 0.2
STAGGER_SECONDS = 0.25  # head start of each host of an address over the next one
# A node that was suspended itself must not consider the server silent: it waits in so many parts, and only
# one of them is over when the node resumes.
PARTS = 4


class Connector:
    def __init__(self, dsn: str, *, silence: float = SILENCE_SECONDS) -> None:
        self._dsn = dsn
        self._silence = silence
        self._host: Host = (None, None)
        self._made: WeakSet[Connection] = WeakSet()
        self._found = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._given_up = False
        self._left: asyncio.Future[None]  # done when all connections to the server are broken off
        self.problem = ""
        """Why no server was found, in the servers' words; empty while there is one."""
        self.away_since: float | None = None
        """The loop's time when the server was lost, or answered last; None while there is one."""

    async def open(self) -> None:
        """Find the server. Raise StoreUnavailable if no host accepts writes."""
        try:
            heartbeat = await self._find(persistent=False)
        except CONNECTING_ERRORS as error:
            raise StoreUnavailable(f"cannot connect to the store: {error}") from error
        try:
            await refuse_transaction_pooling(self._dsn, heartbeat, host=self._host, seconds=self._silence)
        except BaseException as error:
            heartbeat.terminate()
            if isinstance(error, (*CONNECTING_ERRORS, asyncpg.PostgresError)):
                problem = str(error) or f"no answer within {self._silence:g} seconds"
                raise StoreUnavailable(f"cannot connect to the store: {problem}") from error
            raise
        self._left = asyncio.get_running_loop().create_future()
        self._found.set()
        self._watching = asyncio.create_task(self._watch(heartbeat))

    async def connect(self, name: str, settings: Mapping[str, str] | None = None) -> Connection:
        """Open a connection to the server, as soon as there is one. A refusal is one of CONNECTING_ERRORS."""
        await self._found.wait()
        if self._given_up:
            raise StoreUnavailable("the node is stopping; nothing was stored")
        left = self._left
        connecting = asyncio.ensure_future(
            connect(self._dsn, name, settings, host=self._host, seconds=self._silence)
        )
        either: set[asyncio.Future[Any]] = {connecting, left}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            _abandon(connecting)
            raise
        if left.done():
            _abandon(connecting)
            raise ConnectionResetError("the node has left this server")
        connection = connecting.result()
        self._made.add(connection)
        return connection

    def give_up(self) -> None:
        """Break off all connections and make no more. Refuse all calls that wait for the store."""
        self._given_up = True
        self._found.set()
        self._break_off()

    async def close(self) -> None:
        """End all remaining connections."""
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        self._break_off()

    def _break_off(self) -> None:
        if self._watching is None:
            return  # no connections yet
        self._left.set_result(None)
        self._left = asyncio.get_running_loop().create_future()
        for connection in list(self._made):
            connection.terminate()

    async def _watch(self, heartbeat: Connection) -> None:
        """Watch the server. When it is lost, find another, or the same again."""
        try:
            while True:
                demoted = await self._until_lost(heartbeat)
                heartbeat.terminate()
                if not self._given_up:
                    self._found.clear()
                before = self._host
                heartbeat = await self._find(persistent=True)
                if demoted or self._host != before:
                    self._break_off()  # all connections lead to the server that was found
                self.away_since = None
                self._found.set()
        finally:
            heartbeat.terminate()

    async def _until_lost(self, heartbeat: Connection) -> bool:
        """Wait until the server is silent, has ended the heartbeat, or accepts no writes any more. Return
        True in the last case: the server refuses calls itself, and connections are broken off later."""
        lost = asyncio.Event()
        heartbeat.add_termination_listener(lambda _: lost.set())
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await lost.wait()
            asked = asyncio.get_running_loop().time()
            beat = asyncio.ensure_future(heartbeat.execute(ACCEPTS_WRITES))
            beat.add_done_callback(_heed)
            for _ in range(PARTS):
                await asyncio.wait([beat], timeout=self._silence / PARTS)
            if beat.done() and beat.exception() is None:
                continue
            self.away_since = asked
            if not beat.done():
                self.problem = f"no answer within {self._silence:g} seconds"
                log.warning("the store is silent", extra={"seconds": self._silence})
                self._break_off()
                return False
            error = beat.exception()
            if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
                self.problem = str(error)
                log.warning("the store accepts no writes", extra={"error": self.problem})
                return True
            return False

    async def _find(self, *, persistent: bool) -> Connection:
        """Connect the heartbeat to the first host that accepts writes. Try all hosts concurrently, so that a
        silent one does not delay the others."""
        said: dict[Host, str] = {}
        attempts = [
            asyncio.ensure_future(self._reach(host, place * STAGGER_SECONDS, said, persistent=persistent))
            for place, host in enumerate(hosts(self._dsn))
        ]
        chosen: Connection | None = None
        try:
            for attempt in asyncio.as_completed(attempts):
                with contextlib.suppress(*CONNECTING_ERRORS):
                    self._host, chosen = await attempt
                    self.problem = ""
                    return chosen
            raise ConnectionRefusedError(_problem(said))
        finally:
            for each in attempts:
                each.cancel()
            for result in await asyncio.gather(*attempts, return_exceptions=True):
                if isinstance(result, tuple) and result[1] is not chosen:
                    result[1].terminate()

    async def _reach(
        self, host: Host, delay: float, said: dict[Host, str], *, persistent: bool
    ) -> tuple[Host, Connection]:
        await asyncio.sleep(delay)
        while True:
            try:
                connection = await connect(
                    self._dsn, "heartbeat", host=host, seconds=self._silence, statement_cache_size=0
                )
            except Exception as error:
                said[host] = str(error)
                if not persistent:
                    raise
                if not self.problem:
                    log.warning("store unreachable", extra={"error": str(error)})
                self.problem = _problem(said)
            else:
                if self.problem:
                    log.warning("store reachable again")
                return host, connection
            await asyncio.sleep(RECONNECT_SECONDS)


def _problem(said: Mapping[Host, str]) -> str:
    if len(said) == 1:
        return next(iter(said.values()))
    return "; ".join(f"{name} port {port}: {text}" for (name, port), text in said.items())


def _abandon(connecting: asyncio.Future[Connection]) -> None:
    """End a connection that is being made, or has been made too late."""

    def end(made: asyncio.Future[Connection]) -> None:
        if not made.cancelled() and made.exception() is None:
            made.result().terminate()

    connecting.add_done_callback(end)
    connecting.cancel()


def _heed(beat: asyncio.Future[str]) -> None:
    """Retrieve the exception, so that asyncio does not report it as never retrieved."""
    if not beat.cancelled():
        beat.exception()
