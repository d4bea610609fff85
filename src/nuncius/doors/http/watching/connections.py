"""List and close the connections to this node, of every listener and every worker.

Listeners number their connections per process. If there are several workers, an id includes the process: the
id of a connection that ended with its worker matches no other connection.
"""

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from nuncius.broker import Broker
from nuncius.broker.observe.counters_model import ConnectionFacts
from nuncius.doors.http.api.operations import operation
from nuncius.doors.http.connection.http import HttpConnection, peer_of
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.errors import Failed
from nuncius.doors.http.v1.model import Limit, Time
from nuncius.doors.http.web.console import is_console

DOOR = "http"
CONSOLE = b"nuncius-console"
FIGURES = frozenset(("/v1/stats", "/v1/connections", "/v1/consumers", "/v1/ring"))


def is_looking(connection: HttpConnection) -> bool:
    """Return whether a console polls figures of this node here, as it does every other second, or a browser
    shows the console."""
    cycle: Any = connection.cycle  # none before the first request
    if cycle is None:
        return False
    path, headers = cycle.scope["path"], cycle.scope["headers"]
    is_poll = path in FIGURES and not cycle.response_complete and (b"user-agent", CONSOLE) in headers
    return is_poll or is_console(path.encode())


def _describe(connection: HttpConnection) -> ConnectionFacts:
    wall = time.time() - connection.loop.time()
    return ConnectionFacts(
        connection.caller.connection,
        DOOR,
        peer_of(connection.client),
        DOOR,
        "",
        "full",
        wall + connection.since,
        wall + connection.heard_at,
        connection.bytes_in,
        None,
    )


def list_connections(connections: set[Any]) -> Sequence[ConnectionFacts]:
    """Return uvicorn's HTTP connections. WebSocket connections are listed by their own listeners. The
    console's polls and the browsers that show it are left out."""
    found = [each for each in connections if isinstance(each, HttpConnection) and not is_looking(each)]
    return [_describe(each) for each in sorted(found, key=lambda each: each.number)]


def disconnect(connections: set[Any], connection_id: str) -> bool:
    """Close a connection after its answer. Return False if there is none of that id."""
    for each in connections:
        if isinstance(each, HttpConnection) and f"{DOOR}-{each.number}" == connection_id:
            each.shutdown()
            return True
    return False


class V1Connection(msgspec.Struct):
    """A connection to this node. `pid` is its process, `speaks` the dialect, `identity` the name by which the
    client introduced itself."""

    id: str
    pid: int
    door: str
    peer: str
    speaks: str
    identity: str
    mode: str
    since: Time
    last_active: Time
    bytes_in: int
    bytes_out: int | None


class Connections(msgspec.Struct):
    """The number of connections by listener, and the first of them. `missing` are the numbers of workers that
    did not answer in time, whose connections are not included."""

    counts: dict[str, int]
    connections: list[V1Connection]
    missing: list[int] = []


class WhichConnections(msgspec.Struct):
    door: str | None = None
    limit: Limit = 1000


def take_part(broker: Broker) -> None:
    """Let the other workers of the node ask this one for its connections."""
    broker.siblings.answer("connections", partial(_connections, broker))
    broker.siblings.answer("disconnect", partial(_disconnect, broker))


@operation("GET", "/v1/connections")
async def get_connections(desk: Desk, query: WhichConnections) -> Connections:
    """The connections of this node, of all listeners or of one."""
    if query.door is not None and query.door not in desk.broker.counters.doors:
        raise Failed(404, "not_found", f"there is no door {query.door!r}")
    heard = await desk.broker.siblings.ask("connections", query.door, query.limit, kind=Connections)
    counts: Counter[str] = Counter()
    found: list[V1Connection] = []
    for said in heard.said.values():
        counts.update(said.counts)
        found += said.connections
    return Connections(dict(counts), found[: query.limit], heard.missing)


@operation("DELETE", "/v1/connections/{id}", status=204)
async def delete_connection(desk: Desk, id: str) -> None:  # noqa: A002 - the word in the path
    """Close a connection after all sent bytes have gone out."""
    heard = await desk.broker.siblings.ask("disconnect", id, kind=bool)
    if any(heard.said.values()):
        return
    if heard.missing:
        numbers = ", ".join(map(str, heard.missing))
        raise Failed(503, "unavailable", f"no worker that answers has {id!r}; silent: {numbers}")
    raise Failed(404, "not_found", f"there is no connection {id!r}")


def _connections(broker: Broker, door: str | None, limit: int) -> Connections:
    """Return the connections of this process."""
    doors = broker.counters.doors
    chosen = doors.values() if door is None else [doors[door]]
    found = [each for one in chosen for each in one.list_connections()][:limit]
    return Connections(broker.counters.connections, [_shown(broker, each) for each in found])


def _disconnect(broker: Broker, connection_id: str) -> bool:
    suffix = _suffix(broker)
    own = connection_id.removesuffix(suffix)
    return connection_id.endswith(suffix) and any(
        door.disconnect(own) for door in broker.counters.doors.values()
    )


def _suffix(broker: Broker) -> str:
    return f"@{broker.counters.pid}" if broker.siblings.are_several else ""


def _shown(broker: Broker, facts: ConnectionFacts) -> V1Connection:
    return V1Connection(
        facts.id + _suffix(broker),
        broker.counters.pid,
        facts.door,
        facts.peer,
        facts.speaks,
        facts.identity,
        facts.mode,
        datetime.fromtimestamp(facts.since, UTC),
        datetime.fromtimestamp(facts.last_active, UTC),
        facts.bytes_in,
        facts.bytes_out,
    )


OPERATIONS = (get_connections, delete_connection)
