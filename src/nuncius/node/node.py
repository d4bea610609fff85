"""One node: a broker on a store, and the listeners through which clients reach it."""

import contextlib
import errno
import gc
import ipaddress
import logging
import resource
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from nuncius.cluster.dialects import QueueDialect
from nuncius.cluster.role_names import ALL_IN_ONE
from nuncius.node.listeners import Sockets
from nuncius.node.stopping import giving_up, stop_event
from nuncius.ring.settings import RingSettings

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"


class Ports(msgspec.Struct, frozen=True):
    """The port of each listener: 0 is any free port, None turns the listener off."""

    telesto: int | None = 9001
    stomp: int | None = 55664
    zeromq: int | None = 5555
    http: int | None = 5000
    tribbler: int | None = 9009


class Worker(msgspec.Struct, frozen=True):
    """This process's number among several workers behind the same ports, and their shared directory."""

    number: int
    count: int
    directory: str


class NodeSettings(msgspec.Struct, frozen=True):
    dsn: str
    host: str = LOOPBACK
    ports: Ports = Ports()
    trace: str | None = None
    """The directory for trace files."""
    hold: float = 0.040
    """Seconds that a Telesto read waits for a message if there is none."""
    max_body: int = 8 << 20
    max_batch: int = 10_000
    max_connections: int = 10_000
    max_memory: int = 512
    """MB that clients may make the node keep, over all its workers."""
    greeting_seconds: float = 10.0
    """From the start of a connection to its first complete request."""
    progress_seconds: float = 60.0
    """Without a byte in the middle of a request."""
    allowed_origins: tuple[str, ...] = ()
    """Origins whose pages may use the HTTP listener."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of reverse proxies whose forwarding headers are trusted."""
    max_attempts: int = 10
    """Unacknowledged deliveries of a message before it becomes a dead letter."""
    retry_delay: float = 2.0
    """Seconds from a failed delivery to the next."""
    partition_threshold: int = 1_000_000
    """Messages per partition above which the HTTP listener adds a partition to a topic; 0: never."""
    inactive_after: float = 300.0
    """Seconds without a heartbeat after which a producer, a consumer or a broker counts as inactive."""
    worker: Worker | None = None
    """Set if other processes listen on the same ports; the kernel spreads connections over them."""
    ring: RingSettings | None = None
    """The Tribbler listener's place in a ring of nodes; None: no ring."""
    roles: tuple[str, ...] = ALL_IN_ONE
    """The node's roles in a cluster."""
    own_store: str | None = None
    """A broker's own store, for the partitions that are assigned to it."""
    rebalance_after: float = 60.0
    """Seconds from a change of the brokers until partitions are rebalanced; 0: never."""
    link_port: int = 0
    """The port for other nodes of the cluster; 0 is any free port."""
    balancer_port: int | None = None
    """The balancer's port, for a node that is one."""
    advertise: str | None = None
    """The address under which other nodes reach this one, if it differs from the one it listens on."""
    read_only_console: bool = False
    """The console shows data and changes nothing."""
    queue_dialect: QueueDialect = QueueDialect.AUTO
    """The form of answers of the partitioned queue's API."""
    on_leash: bool = False
    """The node ends when its standard input closes."""
    store_timeout: float = 10.0
    """Seconds of silence after which connections to the store are closed and opened again."""
    console_port: int | None = None
    """The console's port on the loopback address, shared by several workers; None: the node starts its
    own."""


class Endpoint(msgspec.Struct, frozen=True):
    host: str
    port: int


Endpoints = dict[str, Endpoint | None]
Announce = Callable[[Endpoints], AbstractContextManager[object]]
"""Announces that the node is ready; leaving the context takes that back."""


class NodeError(Exception):
    """A node cannot start. The message says what to do."""


class NodeListener(Protocol):
    """A listener."""

    async def open(self, host: str, port: int, *, sockets: Sequence[socket.socket] = ()) -> int:
        """Serve these listening sockets, or new ones for the address. Return the port."""

    async def close(self) -> None:
        """Accept no new connections. Accepted requests are answered."""


async def serve(settings: NodeSettings, announce: Announce, sockets: Sockets | None = None) -> None:
    """Run a node until it is told to stop, on these listening sockets or on new ones.

    It shuts down in the reverse order of the start: the announcement is taken back, the listeners close after
    answering accepted requests, and the broker releases the store last.
    """
    from nuncius.broker import Broker
    from nuncius.node.cluster import entered, limits_of, participating

    stop = stop_event(on_leash=settings.on_leash)
    if settings.worker is None:  # with workers, the supervisor has warned once for all
        warn_if_exposed(settings.host)
    broker = Broker(settings.dsn, limits=limits_of(settings), silence=settings.store_timeout)
    async with (
        giving_up(stop, broker.store.give_up),
        broker,
        participating(broker, settings) as participant,
        _open_doors(broker, settings, sockets or {}, stop.set) as doors,
        entered(participant, settings, doors) as endpoints,
    ):
        gc.collect()
        gc.freeze()  # objects made so far stay, so later collections can skip them
        with announce(endpoints):
            await stop.wait()
        log.info("stopping")


def run(settings: NodeSettings, announce: Announce, sockets: Sockets) -> None:
    """Run `serve` on uvloop."""
    import uvloop

    uvloop.run(serve(within_limits(settings), announce, sockets))


def within_limits(settings: NodeSettings) -> NodeSettings:
    """Raise the limit of open files to the system's maximum; a shell's default is often a thousand. Every
    connection is an open file. Listeners are limited to half of them, because without free ones the node
    cannot reach the store."""
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS reports no limit, and has one
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        files = most
    if files == resource.RLIM_INFINITY or settings.max_connections <= files // 2:
        return settings
    log.warning("fewer connections than allowed: too few open files", extra={"files": files})
    return msgspec.structs.replace(settings, max_connections=files // 2)


def warn_if_exposed(host: str) -> None:
    """Log a warning if other machines can reach the listeners: there is no access control."""
    if not is_loopback(host):
        log.warning(
            "any program that reaches this address can read and write everything", extra={"host": host}
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def cannot_listen(door: str, host: str, port: int, error: OSError, option: str = "") -> NodeError:
    """Describe why a listener cannot be opened."""
    if error.errno == errno.EADDRINUSE:
        return NodeError(
            f"port {port} on {host} is in use: end the program that uses it, or choose another "
            f"with {option or f'--{door}-port'} (0 is any free one)"
        )
    return NodeError(f"cannot listen on {host} port {port} for {door}: {error.strerror or error}")


@asynccontextmanager
async def _open_doors(
    broker: object, settings: NodeSettings, sockets: Sockets, give_up: Callable[[], None]
) -> AsyncIterator[Endpoints]:
    from nuncius.broker import Broker
    from nuncius.doors.http.door import HttpDoor
    from nuncius.doors.stomp.door import StompDoor
    from nuncius.doors.telesto.trace import NodeTrace
    from nuncius.doors.tribbler.door import TribblerDoor
    from nuncius.doors.zeromq.door import ZeromqDoor
    from nuncius.node.console_process import ConsoleProcess
    from nuncius.node.shared_port import TelestoDoor
    from nuncius.ring.ownership import OwnedByAnother

    assert isinstance(broker, Broker)
    await broker.store.connect_lanes()
    broker.actors.inactive_after = settings.inactive_after
    trace = None if settings.trace is None else NodeTrace(Path(settings.trace))
    stomp = StompDoor(broker, settings.max_connections)
    console_port, keeper = settings.console_port, None
    if console_port is None and settings.ports.http is not None:
        keeper = ConsoleProcess(settings.dsn, read_only=settings.read_only_console)
        console_port = keeper.open()
    # They close in reverse order: doors that speak over WebSocket end their connections before HTTP does.
    doors: dict[str, NodeListener] = {
        "http": HttpDoor(
            broker,
            (stomp.over_websocket(),),
            partition_threshold=settings.partition_threshold,
            max_connections=settings.max_connections,
            console_port=console_port,
            allowed_origins=settings.allowed_origins,
            dialect=settings.queue_dialect,
            trusted_proxies=settings.trusted_proxies,
        ),
        "telesto": TelestoDoor(broker, settings.hold, trace, settings.max_connections),
        "stomp": stomp,
        "zeromq": ZeromqDoor(broker, settings.max_connections),
        "tribbler": TribblerDoor(broker, settings.ring, settings.max_connections, give_up=give_up),
    }
    wanted: dict[str, int | None] = msgspec.structs.asdict(settings.ports)
    endpoints: Endpoints = dict.fromkeys(wanted)
    async with AsyncExitStack() as opened:
        if trace is not None:
            opened.callback(trace.close)
        if keeper is not None:
            opened.push_async_callback(keeper.close)
        if settings.worker is not None:  # before any request: a worker never answers for itself alone
            place = settings.worker
            opened.callback(broker.siblings.close)
            await broker.siblings.open(Path(place.directory), place.number, place.count)
        for name, door in doors.items():
            opened.push_async_callback(door.close)
            port = wanted[name]
            if port is None:
                continue
            try:
                bound = await door.open(settings.host, port, sockets=sockets.get(name, ()))
            except OwnedByAnother as error:
                raise NodeError(str(error)) from error
            endpoints[name] = Endpoint(settings.host, bound)
        yield endpoints
