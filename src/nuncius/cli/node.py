"""One node: a broker on a store, and the doors through which clients reach it."""

import errno
import ipaddress
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from nuncius.cli.stopping import stop_event

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"


class Ports(msgspec.Struct, frozen=True):
    """Where each door listens: 0 is any free port, None is a closed door."""

    telesto: int | None = 9001
    stomp: int | None = 55664
    zeromq: int | None = 5555
    http: int | None = 5000
    tribbler: int | None = 9009


class NodeSettings(msgspec.Struct, frozen=True):
    dsn: str
    host: str = LOOPBACK
    ports: Ports = Ports()
    trace: str | None = None
    """The directory for trace files."""
    hold: float = 0.040
    """For how many seconds a Telesto read that finds nothing waits for a message."""
    max_body: int = 8 << 20
    max_batch: int = 10_000
    max_connections: int = 10_000
    max_attempts: int = 10
    """Deliveries of a message that nobody acknowledges, before it becomes a dead letter."""
    retry_delay: float = 2.0
    """Seconds from a failed delivery to the next."""
    share_ports: bool = False
    """Other processes listen on the same ports; the kernel spreads connections over them."""


class Endpoint(msgspec.Struct, frozen=True):
    host: str
    port: int


Endpoints = dict[str, Endpoint | None]
Announce = Callable[[Endpoints], AbstractContextManager[object]]
"""Tells the world that the node is ready; leaving the context takes that back."""


class NodeError(Exception):
    """A node cannot start. The message says what to do."""


class Door(Protocol):
    """What every door can do."""

    async def open(self, host: str, port: int, *, share_port: bool = False) -> int:
        """Listens, and says on which port."""

    async def close(self) -> None:
        """No new connections; what was accepted is answered."""


async def serve(settings: NodeSettings, announce: Announce, *, on_leash: bool = False) -> None:
    """Runs a node until it is told to stop.

    The end comes in the opposite order of the beginning: the announcement is taken back, the doors
    close after answering what they accepted, and the broker lets go of the store last.
    """
    from nuncius.broker import Broker
    from nuncius.broker.limits import Limits

    stop = stop_event(on_leash=on_leash)
    if not settings.share_ports:  # else the supervisor has said it, once for all workers
        warn_of_strangers(settings.host)
    limits = Limits(
        max_body=settings.max_body,
        max_batch=settings.max_batch,
        max_attempts=settings.max_attempts,
        retry_delay=settings.retry_delay,
    )
    async with Broker(settings.dsn, limits=limits) as broker, _open_doors(broker, settings) as endpoints:
        with announce(endpoints):
            await stop.wait()
        log.info("stopping")


def run(settings: NodeSettings, announce: Announce, *, on_leash: bool = False) -> None:
    """`serve` on an event loop of its own, the fast one."""
    import uvloop

    uvloop.run(serve(settings, announce, on_leash=on_leash))


def warn_of_strangers(host: str) -> None:
    """Says so when other machines can reach the doors: they have no locks."""
    if not is_loopback(host):
        log.warning(
            "everybody who can reach this address can read and write everything", extra={"host": host}
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def cannot_listen(door: str, host: str, port: int, error: OSError) -> NodeError:
    """The sentence for a door that does not open."""
    if error.errno == errno.EADDRINUSE:
        return NodeError(
            f"port {port} on {host} is in use: end the program that uses it, or choose another "
            f"with --{door}-port (0 is any free one)"
        )
    return NodeError(f"cannot listen on {host} port {port} for {door}: {error.strerror or error}")


@asynccontextmanager
async def _open_doors(broker: object, settings: NodeSettings) -> AsyncIterator[Endpoints]:
    from nuncius.broker import Broker
    from nuncius.doors.http.door import HttpDoor
    from nuncius.doors.stomp.door import StompDoor
    from nuncius.doors.telesto.door import TelestoDoor
    from nuncius.doors.telesto.trace import NodeTrace
    from nuncius.doors.zeromq.door import ZeromqDoor

    assert isinstance(broker, Broker)
    trace = None if settings.trace is None else NodeTrace(Path(settings.trace))
    stomp = StompDoor(broker, settings.max_connections)
    # They close in the opposite order: whoever speaks over WebSocket ends its connections before HTTP does.
    doors: dict[str, Door] = {
        "http": HttpDoor(broker, (stomp.over_websocket(),)),
        "telesto": TelestoDoor(broker, settings.hold, trace, settings.max_connections),
        "stomp": stomp,
        "zeromq": ZeromqDoor(broker, settings.max_connections),
    }
    wanted: dict[str, int | None] = msgspec.structs.asdict(settings.ports)
    endpoints: Endpoints = dict.fromkeys(wanted)
    async with AsyncExitStack() as opened:
        if trace is not None:
            opened.callback(trace.close)
        for name, door in doors.items():
            opened.push_async_callback(door.close)
            port = wanted[name]
            if port is None:
                continue
            try:
                bound = await door.open(settings.host, port, share_port=settings.share_ports)
            except OSError as error:
                raise cannot_listen(name, settings.host, port, error) from error
            endpoints[name] = Endpoint(settings.host, bound)
        yield endpoints
