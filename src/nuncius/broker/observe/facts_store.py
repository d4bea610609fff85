"""Health of the store: sizes, obstacles for vacuum, slow procedures, and advice."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from nuncius.store.store import Store

LONG_TRANSACTION = timedelta(minutes=1)
MANY_DEAD_ROWS = 1_000_000
CROWDED = 0.8  # of the connections a server allows


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
class OpenTransaction:
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
class Advice:
    """An assessment. `level`: ok, warn or fail. `text` states the problem, `remedy` the recommendation."""

    level: str
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    version: str
    schema: int
    now: datetime
    bytes: int
    connections: int
    max_connections: int
    off: tuple[str, ...]
    """Settings that keep acknowledged messages safe, and are off."""
    prepared: str | None
    """A prepared transaction that is open for too long."""
    tables: tuple[TableFacts, ...]
    transactions: tuple[OpenTransaction, ...]
    procedures: tuple[ProcedureFacts, ...]
    """Slowest first, if the server measures them (`track_functions`). Nodes measure theirs themselves."""

    @property
    def dead(self) -> int:
        return sum(table.dead for table in self.tables)

    @property
    def live(self) -> int:
        return sum(table.live for table in self.tables)

    def advice(self) -> tuple[Advice, ...]:
        """Return the advice, the worst first. If all is well, return one sentence that says so."""
        found = [*self._durability(), *self._transactions(), *self._rows(), *self._room()]
        return tuple(found) or (Advice("ok", "The store is in order. There is nothing to do."),)

    def _durability(self) -> list[Advice]:
        if not self.off:
            return []
        return [
            Advice(
                "fail",
                f"{', '.join(self.off)} is off: acknowledged messages can be lost in a crash.",
                "Turn it on in postgresql.conf and reload.",
            )
        ]

    def _transactions(self) -> list[Advice]:
        found = []
        if self.prepared is not None:
            found.append(
                Advice(
                    "warn",
                    f"The prepared transaction {self.prepared!r} is open for more than a minute.",
                    "Commit it or roll it back; until then no dead row can be removed.",
                )
            )
        oldest = self.transactions[0] if self.transactions else None
        if oldest is not None and self.now - oldest.opened_at > LONG_TRANSACTION:
            minutes = int((self.now - oldest.opened_at).total_seconds() // 60)
            who = f"process {oldest.pid} ({oldest.user}, {oldest.application or 'no name'})"
            found.append(
                Advice(
                    "warn",
                    f"A transaction of {who} is open for {minutes} min, {oldest.state}.",
                    f"End it there, or with select pg_terminate_backend({oldest.pid});"
                    " until then no dead row can be removed.",
                )
            )
        return found

    def _rows(self) -> list[Advice]:
        if self.dead <= MANY_DEAD_ROWS or self.dead <= self.live:
            return []
        worst = max(self.tables, key=lambda table: table.dead)
        return [
            Advice(
                "warn",
                f"There are {self.dead:,} dead rows beside {self.live:,} live ones, most in {worst.name}.",
                "See that autovacuum is on and that no transaction stays open.",
            )
        ]

    def _room(self) -> list[Advice]:
        if self.connections <= CROWDED * self.max_connections:
            return []
        return [
            Advice(
                "warn",
                f"{self.connections} of {self.max_connections} connections are in use.",
                "Raise max_connections, or run fewer nodes.",
            )
        ]


class StoreFactsReader:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self) -> StoreFacts:
        row = (
            await self._store.query(
                "select current_setting('server_version') as version,"
                " (select max(version) from nuncius.migrations) as schema, now() as now,"
                " pg_database_size(current_database()) as bytes,"
                " (select count(*) from pg_stat_activity where backend_type = 'client backend') as used,"
                " current_setting('max_connections')::int as allowed,"
                " array(select name from pg_settings where setting = 'off'"
                "  and name in ('fsync', 'full_page_writes', 'synchronous_commit') order by 1) as off,"
                " (select gid from pg_prepared_xacts where database = current_database()"
                "  and now() - prepared > $1 order by prepared limit 1) as prepared",
                LONG_TRANSACTION,
            )
        )[0]
        tables = await self._store.query("select * from nuncius.facts_of_tables()")
        transactions = await self._store.query("select * from nuncius.open_transactions()")
        procedures = await self._store.query(
            "select funcname, calls, total_time from pg_stat_user_functions where schemaname = 'nuncius'"
            " order by total_time desc limit 20"
        )
        return StoreFacts(
            row["version"],
            row["schema"],
            row["now"],
            row["bytes"],
            row["used"],
            row["allowed"],
            tuple(row["off"]),
            row["prepared"],
            tuple(TableFacts(*each) for each in tables),
            tuple(OpenTransaction(*each) for each in transactions),
            tuple(ProcedureFacts(*each) for each in procedures),
        )
