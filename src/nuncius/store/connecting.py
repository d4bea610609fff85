"""Connections to PostgreSQL: direct or through a pooler, to servers that accept writes, with a timeout.

Settings are made after connecting, not in the start-up packet: a pooler refuses start-up parameters that it
does not know.
"""

import asyncio
import os
import socket
from collections.abc import Mapping
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from nuncius.store.driver import Connection
from nuncius.store.errors import UnsupportedServer

# Errors of a dead or dying connection. A failed statement raises none of these.
CONNECTION_ERRORS: tuple[type[Exception], ...] = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,  # the server shuts down, starts up or was told to end the session
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,  # the server was demoted under the connection
)
# The server rolled the transaction back and asks to try again.
TRANSIENT_ERRORS: tuple[type[Exception], ...] = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
)
# The same as CONNECTION_ERRORS, and a connection attempt that takes too long.
CONNECTING_ERRORS: tuple[type[Exception], ...] = (*CONNECTION_ERRORS, TimeoutError)

# Fails with ReadOnlySQLTransactionError on a standby and on a server that was made read-only.
ACCEPTS_WRITES = """\
do $$ begin
    if current_setting('transaction_read_only')::boolean then
        raise read_only_sql_transaction
            using message = 'this server accepts no writes: it is a standby, or read-only by its settings';
    end if;
end $$"""

# Seconds after which either side notices that the other machine is gone.
_IDLE, _INTERVAL, _COUNT, _UNACKNOWLEDGED = 30, 10, 3, 60
_SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, option), value)
        for option, value in (
            ("TCP_KEEPIDLE", _IDLE),
            ("TCP_KEEPINTVL", _INTERVAL),
            ("TCP_KEEPCNT", _COUNT),
            ("TCP_USER_TIMEOUT", _UNACKNOWLEDGED * 1000),
        )
        if hasattr(socket, option)  # Linux has them all
    ),
)
# Without these the server keeps the locks of a node whose machine is gone for two hours.
_SERVER_KEEPALIVE = {
    "tcp_keepalives_idle": f"{_IDLE}",
    "tcp_keepalives_interval": f"{_INTERVAL}",
    "tcp_keepalives_count": f"{_COUNT}",
    "tcp_user_timeout": f"{_UNACKNOWLEDGED}s",
}

# A busy pooler may by chance give a connection the same session again.
CHECKS = 10

Host = tuple[str | None, int | None]


def hosts(dsn: str) -> list[Host]:
    """List the hosts of an address with several, as the driver reads it. Leave a single one to the driver."""
    parsed = urlsplit(dsn)
    query = {name: values[-1] for name, values in parse_qs(parsed.query).items()}
    named, ports = unquote(parsed.netloc.rpartition("@")[2]), ""
    if not named:
        named, ports = query.get("host", ""), query.get("port", "")
    if not named and "service" not in query:
        named = os.environ.get("PGHOST", "")
    names = named.split(",")
    if len(names) == 1:
        return [(None, None)]
    if not ports:
        usual = os.environ.get("PGPORT", "5432").split(",")
        return [_host(*each) for each in zip(names, _each(usual, names), strict=True)]
    given = _each(ports.split(","), names)
    return [(_host(name, "0")[0], int(port)) for name, port in zip(names, given, strict=True)]


def _each(ports: list[str], names: list[str]) -> list[str]:
    """Give every host its port. A single port is for all hosts."""
    if len(ports) not in (1, len(names)):
        raise ValueError(f"the store's address has {len(names)} hosts and {len(ports)} ports")
    return ports * len(names) if len(ports) == 1 else ports


def _host(name: str, usual: str) -> Host:
    """Split a host from its own port, if it has one."""
    if name.startswith("/"):
        return name, int(usual)
    host, bracket, port = name.partition("]")  # around an address of IPv6
    if not bracket:
        host, _, port = name.partition(":")
    return host.removeprefix("["), int(port.removeprefix(":") or usual)


async def connect(
    dsn: str,
    name: str,
    settings: Mapping[str, str] | None = None,
    *,
    host: Host = (None, None),
    seconds: float,
    statement_cache_size: int = 100,
) -> Connection:
    """Open a connection to a server that accepts writes. Every refusal is one of CONNECTING_ERRORS."""
    connection: Connection | None = None
    try:
        async with asyncio.timeout(seconds):
            connection = await asyncpg.connect(
                dsn,
                host=host[0],
                port=host[1],
                server_settings={"application_name": f"nuncius {name}"},
                statement_cache_size=statement_cache_size,
            )
            keepalive = _SERVER_KEEPALIVE if _keep_alive(connection) else {}
            await connection.execute(f"{set_all({**keepalive, **(settings or {})})}{ACCEPTS_WRITES}")
    except BaseException as error:
        if connection is not None:
            connection.terminate()
        if isinstance(error, TimeoutError):
            raise TimeoutError(f"no answer within {seconds:g} seconds") from error
        if isinstance(error, asyncpg.PostgresError):
            raise ConnectionRefusedError(str(error)) from error
        raise
    return connection


async def connect_anywhere(
    dsn: str, name: str, settings: Mapping[str, str] | None = None, *, seconds: float
) -> Connection:
    """Open a connection to the first host of an address that accepts writes."""
    refusals = []
    for host in hosts(dsn):
        try:
            return await connect(dsn, name, settings, host=host, seconds=seconds)
        except CONNECTING_ERRORS as error:
            refusals.append(error)
    raise refusals[-1]


def set_all(settings: Mapping[str, str]) -> str:
    """Return the statements that make settings for the rest of a session."""
    return "".join(f"set {name} to '{value}';\n" for name, value in settings.items())


def _keep_alive(connection: Connection) -> bool:
    """Have the kernel notice when the server's machine is gone. Return False if it is this machine."""
    # The driver offers no other way to the socket.
    sock = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]  # noqa: SLF001
    if sock.family == socket.AF_UNIX:
        return False
    for option in _SOCKET_OPTIONS:
        sock.setsockopt(*option)
    return True


async def refuse_transaction_pooling(dsn: str, connection: Connection, *, host: Host, seconds: float) -> None:
    """Raise UnsupportedServer if a pooler gives two connections the same session in turn.

    `connection` must have been made without a cache of statements, which such a pooler mixes up.
    """
    async with asyncio.timeout(seconds):
        first = await _session(connection)
        if first == connection.get_server_pid():
            return  # no pooler in between
        other = await connect(dsn, "pooler check", host=host, seconds=seconds, statement_cache_size=0)
        try:
            async with other.transaction():
                changed = await other.fetchval("select pg_backend_pid()") == first
                for _ in range(CHECKS):
                    changed = changed or await _session(connection) != first
                if changed:
                    raise UnsupportedServer(
                        "this address leads to a pooler in transaction mode: nodes listen, prepare "
                        "statements and hold advisory locks, so they need session mode (PgBouncer: "
                        "pool_mode = session) or a direct connection"
                    )
        finally:
            other.terminate()


async def _session(connection: Connection) -> int:
    """Return the server process of the session. Ask in a transaction, because a pooler keeps it for one."""
    async with connection.transaction():
        process: int = await connection.fetchval("select pg_backend_pid()")
    return process
