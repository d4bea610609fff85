"""The checks that `nuncius doctor` makes of a database."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

from nuncius.cli.commands.doctor import messages as examination_messages
from nuncius.cli.commands.doctor.findings import Finding, fail, ok, warn
from nuncius.store import migrations
from nuncius.store.driver import Connection

LONG_TRANSACTION = timedelta(minutes=1)
MANY_DEAD_ROWS = 1_000_000
CROWDED = 0.8  # of max_connections
LEAST_BYTES = {"shared_buffers": 64 << 20, "max_wal_size": 512 << 20}


async def examine(connection: Connection) -> AsyncIterator[Finding]:
    """Make all checks of a database. Yield one finding after the other."""
    checks: list[Callable[[Connection], Awaitable[Finding]]] = [
        _version,
        _schema,
        _durability,
        _settings,
        _transactions,
        _dead_rows,
        _connections,
    ]
    for check in checks:
        yield await check(connection)
    if await migrations.version(connection) == migrations.newest():
        async for finding in examination_messages.examine(connection):
            yield finding


async def _version(connection: Connection) -> Finding:
    version = await connection.fetchval("select current_setting('server_version')")
    if connection.get_server_version().major < migrations.OLDEST_SERVER:
        return fail("PostgreSQL", version, f"upgrade it to {migrations.OLDEST_SERVER} or newer")
    return ok("PostgreSQL", version)


async def _schema(connection: Connection) -> Finding:
    current, known = await migrations.version(connection), migrations.newest()
    if current is None:
        return warn("schema", "there is none", "nuncius up, or nuncius migrate, makes it")
    if current > known:
        return fail(
            "schema",
            f"version {current}, and this program knows {known}",
            "upgrade this program",
        )
    if current < known:
        return warn(
            "schema",
            f"version {current} of {known}",
            "nuncius up, or nuncius migrate, brings it up to date",
        )
    return ok("schema", f"version {current}")


async def _durability(connection: Connection) -> Finding:
    rows = await connection.fetch(
        "select name, setting from pg_settings"
        " where name in ('fsync', 'full_page_writes', 'synchronous_commit')"
        " and setting = 'off' order by name"
    )
    if rows:
        off = ", ".join(row["name"] for row in rows)
        return fail(
            "durability",
            f"off: {off}",
            "turn it on: without it, acknowledged messages can be lost in a crash",
        )
    return ok("durability", "fsync, full_page_writes and synchronous_commit are on")


async def _settings(connection: Connection) -> Finding:
    rows = await connection.fetch(
        "select name, setting, current_setting(name) as shown,"
        " setting::bigint * case unit when '8kB' then 8192 when 'MB' then 1048576 else 1 end as amount"
        " from pg_settings where name in ('shared_buffers', 'max_wal_size')"
        " union all select name, setting, setting, 0 from pg_settings where name = 'autovacuum'"
    )
    found = {row["name"]: row for row in rows}
    shown = ", ".join(f"{name} {found[name]['shown']}" for name in sorted(found))
    if found["autovacuum"]["setting"] == "off":
        return fail("settings", shown, "turn autovacuum on: without it every table grows and slows down")
    small = [name for name, least in LEAST_BYTES.items() if found[name]["amount"] < least]
    if small:
        return warn("settings", shown, f"raise {' and '.join(small)}: so little costs speed under load")
    return ok("settings", shown)


async def _transactions(connection: Connection) -> Finding:
    row = await connection.fetchrow(
        "select pid, usename, application_name, state, now() - xact_start as age"
        " from pg_stat_activity where xact_start is not null and pid <> pg_backend_pid()"
        " and backend_type = 'client backend' and datname = current_database()"
        " order by xact_start limit 1"
    )
    prepared = await connection.fetchrow(
        "select gid, now() - prepared as age from pg_prepared_xacts"
        " where database = current_database() order by prepared limit 1"
    )
    if prepared is not None and prepared["age"] > LONG_TRANSACTION:
        return warn(
            "transactions",
            f"prepared transaction {prepared['gid']!r} is open for {_span(prepared['age'])}",
            "commit or roll it back; until then no dead row can be removed",
        )
    if row is None:
        return ok("transactions", "none is open")
    who = f"process {row['pid']} ({row['usename']}, {row['application_name'] or 'no name'})"
    if row["age"] > LONG_TRANSACTION:
        return warn(
            "transactions",
            f"{who} has one open for {_span(row['age'])}, {row['state']}",
            "end it there, or with select pg_terminate_backend"
            f"({row['pid']}); until then no dead row can be removed",
        )
    return ok("transactions", f"the oldest is {_span(row['age'])} old, of {who}")


async def _dead_rows(connection: Connection) -> Finding:
    row: Any = await connection.fetchrow(
        "select coalesce(sum(n_dead_tup), 0)::bigint as dead,"
        " coalesce(sum(n_live_tup), 0)::bigint as live,"
        " now() - max(last_autovacuum) as since,"
        " (array_agg(relname order by n_dead_tup desc))[1] as worst"
        " from pg_stat_user_tables where schemaname = 'nuncius'"
    )
    vacuumed = (
        "never vacuumed by itself yet" if row["since"] is None else f"vacuumed {_span(row['since'])} ago"
    )
    detail = f"{row['dead']:,} dead beside {row['live']:,} live, {vacuumed}"
    if row["dead"] > MANY_DEAD_ROWS and row["dead"] > row["live"]:
        return warn(
            "rows",
            f"{detail}, most in {row['worst']}",
            "see that autovacuum is on and no transaction stays open",
        )
    return ok("rows", detail)


async def _connections(connection: Connection) -> Finding:
    row: Any = await connection.fetchrow(
        "select (select count(*) from pg_stat_activity where backend_type = 'client backend') as used,"
        " current_setting('max_connections')::int as allowed"
    )
    detail = f"{row['used']} of {row['allowed']} in use"
    if row["used"] > CROWDED * row["allowed"]:
        return warn("connections", detail, "raise max_connections, or run fewer nodes")
    return ok("connections", detail)


def _span(age: timedelta) -> str:
    seconds = int(age.total_seconds())
    if seconds < 60:
        return f"{max(age.total_seconds(), 0):.1f} s"
    minutes, hours = seconds // 60, seconds // 3600
    return f"{minutes} min" if minutes < 120 else f"{hours} h"
