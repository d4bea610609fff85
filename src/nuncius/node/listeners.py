"""The listening sockets of a node, which it opens before everything else.

Loading the program, starting PostgreSQL and migrating a store take a second or more. Clients that connect in
the meantime wait in the kernel instead of being refused. If the start fails, their connections are closed.
"""

import contextlib
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nuncius.doors import listening

Sockets = dict[str, list[socket.socket]]
"""The listening sockets of one process, by listener."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """All listening sockets of a node."""

    ports: dict[str, int | None]
    """The port of each listener; None for one that is off."""
    sockets: tuple[Sockets, ...]
    """Sockets per worker; a node without workers has one set."""

    def close(self) -> None:
        """Refuse connections from now on, except where another process has the same sockets."""
        for each in self.sockets:
            close(each)

    def pause(self, worker: int) -> None:
        """Send new connections to the other workers until a successor listens on this worker's sockets.

        The worker has died: connections that it had not accepted are closed, like the ones that it had.
        """
        for sockets in self.sockets[worker - 1].values():
            for each in sockets:
                with contextlib.suppress(OSError):  # does not work on every system; there, connections wait
                    each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def opened(
    host: str, ports: Mapping[str, int | None], workers: int = 1, *, option: str = ""
) -> Iterator[Listeners]:
    """Listen on the ports of all open doors, once for each worker.

    `option` names the option that chooses a port, for messages; by default --DOOR-port.
    """
    listeners = Listeners(dict(ports), tuple({} for _ in range(workers)))
    try:
        for door, port in ports.items():
            if port is not None:
                listeners.ports[door] = _open(listeners, host, door, port, option)
        yield listeners
    finally:
        listeners.close()


def _open(listeners: Listeners, host: str, door: str, port: int, option: str) -> int:
    workers = len(listeners.sockets)
    try:
        if workers == 1:
            found = [listening.listen(host, port)]
        else:
            found = listening.listen_for_workers(host, port, workers)
    except OSError as error:
        from nuncius.node.node import cannot_listen

        raise cannot_listen(door, host, port, error, option) from error
    for sockets, mine in zip(listeners.sockets, found, strict=True):
        sockets[door] = mine
    return listening.port_of(found[0])


def numbers(sockets: Sockets) -> dict[str, list[int]]:
    """Name the sockets by their descriptors, for a process that inherits them."""
    return {door: [each.fileno() for each in some] for door, some in sockets.items()}


def inherited(numbers: Mapping[str, list[int]]) -> Sockets:
    """Return the sockets that this process was started with."""
    return {door: [_adopt(number) for number in some] for door, some in numbers.items()}


def close(sockets: Sockets) -> None:
    for some in sockets.values():
        listening.close(some)


def _adopt(number: int) -> socket.socket:
    adopted = socket.socket(fileno=number)
    adopted.set_inheritable(False)  # not for processes that this one starts
    adopted.setblocking(False)
    return adopted
