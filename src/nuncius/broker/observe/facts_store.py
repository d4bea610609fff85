"""Health of the store: sizes, obstacles for vacuum, slow procedures, and findings."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from nuncius.broker.observe.findings import Finding, fail, ok, warn
from nuncius.store.queries import procedure, query

SERVER = query("health", "server")
SETTINGS = query("health", "settings")
TABLES = procedure("facts_of_tables", 0)
TRANSACTIONS = procedure("open_transactions", 0)
PROCEDURES = query("health", "procedures")

LONG_TRANSACTION = timedelta(minutes=1)
MANY_DEAD_ROWS = 1_000_000
CROWDED = 0.8  # of the connections a server allows
DURABLE = ("fsync", "full_page_writes", "synchronous_commit")
LEAST_BYTES = {"shared_buffers": 64 << 20, "max_wal_size": 512 << 20}
NOT_VACUUMED = "until then no dead row can be removed"

Fetch = Callable[..., Awaitable[list[Any]]]


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    value: str
    shown: str
    bytes: int | None
    """Of a setting that is a size."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    name: str
    bytes: int
    """With its indexes."""
    index_bytes: int
    live: int
    dead: int
    vacuumed_at: datetime | None


@dataclass(frozen=True, slots=True)
class StoreTransaction:
    """An open transaction, and its session."""

    pid: int
    user: str
    application: str
    address: str | None
    state: str
    opened_at: datetime
    query: str


@dataclass(frozen=True, slots=True)
class ProcedureFacts:
    name: str
    calls: int
    total_ms: float

    @property
    def mean_ms(self) -> float:
        return self.total_ms / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class StoreFacts:
    schema: int | None
    version: str
    now: datetime
    bytes: int
    connections: int
    max_connections: int
    prepared: str | None
    """The oldest prepared transaction."""
    prepared_at: datetime | None
    settings: tuple[Setting, ...]
    tables: tuple[TableFacts, ...] = ()
    transactions: tuple[StoreTransaction, ...] = ()
    """The longest open ones first."""
    procedures: tuple[ProcedureFacts, ...] = ()
    """Slowest first, if the server measures them (`track_functions`). Nodes measure theirs themselves."""

    @property
    def dead(self) -> int:
        return sum(table.dead for table in self.tables)

    @property
    def live(self) -> int:
        return sum(table.live for table in self.tables)

    def findings(self) -> list[Finding]:
        """Check what a running store needs."""
        return [self._durability(), self._transactions(), self._rows(), self._room()]

    def _durability(self) -> Finding:
        off = [each.name for each in self.settings if each.name in DURABLE and each.value == "off"]
        if off:
            advice = "turn it on in postgresql.conf and reload: acknowledged messages can be lost in a crash"
            return fail("durability", f"off: {', '.join(off)}", advice)
        return ok("durability", "fsync, full_page_writes and synchronous_commit are on")

    def speed(self) -> Finding:
        """Check the settings that decide about speed."""
        found = [each for each in self.settings if each.name not in DURABLE]
        shown = ", ".join(f"{each.name} {each.shown}" for each in found)
        if any(each.name == "autovacuum" and each.value == "off" for each in found):
            return fail("settings", shown, "turn autovacuum on: without it every table grows and slows down")
        small = [each.name for each in found if (each.bytes or 0) < LEAST_BYTES.get(each.name, 0)]
        if small:
            return warn("settings", shown, f"raise {' and '.join(small)}: so little costs speed under load")
        return ok("settings", shown)

    def _transactions(self) -> Finding:
        if self.prepared_at is not None and self.now - self.prepared_at > LONG_TRANSACTION:
            detail = f"the prepared transaction {self.prepared!r} is open for {self._since(self.prepared_at)}"
            return warn("transactions", detail, f"commit it or roll it back; {NOT_VACUUMED}")
        if not self.transactions:
            return ok("transactions", "none is open")
        oldest = self.transactions[0]
        age = self._since(oldest.opened_at)
        session = f"process {oldest.pid} ({oldest.user}, {oldest.application or 'no name'})"
        if self.now - oldest.opened_at > LONG_TRANSACTION:
            return warn(
                "transactions",
                f"a transaction of {session} is open for {age}, {oldest.state}",
                f"end it there, or with select pg_terminate_backend({oldest.pid}); {NOT_VACUUMED}",
            )
        return ok("transactions", f"the oldest is {age} old, of {session}")

    def _rows(self) -> Finding:
        if self.dead > MANY_DEAD_ROWS and self.dead > self.live:
            worst = max(self.tables, key=lambda table: table.dead)
            return warn(
                "rows",
                f"{self.dead:,} dead rows beside {self.live:,} live ones, most in {worst.name}",
                "see that autovacuum is on and that no transaction stays open",
            )
        last = max((each.vacuumed_at for each in self.tables if each.vacuumed_at), default=None)
        vacuumed = "never vacuumed yet" if last is None else f"vacuumed {self._since(last)} ago"
        return ok("rows", f"{self.dead:,} dead beside {self.live:,} live, {vacuumed}")

    def _room(self) -> Finding:
        detail = f"{self.connections} of {self.max_connections} connections are in use"
        if self.connections > CROWDED * self.max_connections:
            return warn("connections", detail, "raise max_connections, or run fewer nodes")
        return ok("connections", detail)

    def _since(self, then: datetime) -> str:
        seconds = max((self.now - then).total_seconds(), 0.0)
        if seconds < 60:
            return f"{seconds:.1f} s"
        return f"{seconds // 60:.0f} min" if seconds < 7200 else f"{seconds // 3600:.0f} h"


async def read_store(fetch: Fetch, schema: int | None) -> StoreFacts:
    """Read the facts of a database with this version of the schema; None if it has none."""
    (server,) = await fetch(SERVER)
    settings = tuple(Setting(*each) for each in await fetch(SETTINGS))
    facts = StoreFacts(schema=schema, settings=settings, **server)
    if schema is None:
        return facts
    return replace(
        facts,
        tables=tuple(TableFacts(*each) for each in await fetch(TABLES)),
        transactions=tuple(StoreTransaction(*each) for each in await fetch(TRANSACTIONS)),
        procedures=tuple(ProcedureFacts(*each) for each in await fetch(PROCEDURES)),
    )
