"""Listening sockets.

A node opens them before it does anything else: from then on clients can connect, and wait in the kernel until
a listener serves them.
"""

import errno
import socket
from collections.abc import Iterable, Sequence

BACKLOG = 2048
"""Connections that may wait to be accepted; the system has its own limit, too (net.core.somaxconn)."""
ATTEMPTS = 20  # to find a port that is free on all addresses of a host
# A machine that disappears without closing its connections is noticed within a minute, and the messages in
# flight on them are redelivered. Connections inherit these options from the listening socket.
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, option), value)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, option)  # macOS has another name for the first one
    ),
)
_MISSING = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}  # `localhost` may name an address that is switched off

Address = tuple[socket.AddressFamily, tuple[str, int, *tuple[int, ...]]]


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of a host, under one port number. 0 selects any free port."""
    return _start(_bind(host, port, share=False))


def listen_for_workers(host: str, port: int, workers: int) -> list[list[socket.socket]]:
    """Listen several times on one port: the kernel spreads connections over the sockets of the workers."""
    found = _bind(host, port, share=False)  # fails if another program has the port, even with SO_REUSEPORT
    number = port_of(found)
    close(found)
    made: list[list[socket.socket]] = []
    try:
        for _ in range(workers):
            made.append(_start(_bind(host, number, share=True)))  # noqa: PERF401 - open sockets get closed
    except BaseException:
        for sockets in made:
            close(sockets)
        raise
    return made


def port_of(sockets: Sequence[socket.socket]) -> int:
    """Return the port number that the sockets have in common."""
    number: int = sockets[0].getsockname()[1]
    return number


def close(sockets: Iterable[socket.socket]) -> None:
    for each in sockets:
        each.close()


def _start(sockets: list[socket.socket]) -> list[socket.socket]:
    try:
        for each in sockets:
            each.listen(BACKLOG)
    except BaseException:
        close(sockets)
        raise
    return sockets


def _bind(host: str, port: int, *, share: bool) -> list[socket.socket]:
    """Bind a socket to each address of a host. If the port is 0, find one that is free on all of them."""
    addresses = _addresses(host, port)
    for attempt in range(ATTEMPTS):
        try:
            return _bind_all(addresses, port, share)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _addresses(host: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))  # type: ignore[misc]


def _bind_all(addresses: list[Address], port: int, share: bool) -> list[socket.socket]:
    both = len({family for family, _ in addresses}) > 1
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, (host, _, *more) in addresses:
            try:
                bound.append(_bind_one(family, (host, port, *more), share=share, only_ipv6=both))
            except OSError as error:
                if error.errno not in _MISSING:
                    raise
                missing = error
            else:
                port = port_of(bound)
    except BaseException:
        close(bound)
        raise
    if missing is not None and not bound:
        raise missing
    return bound


def _bind_one(
    family: socket.AddressFamily, address: tuple[object, ...], *, share: bool, only_ipv6: bool
) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if only_ipv6 and family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        for level, option, value in KEEPALIVE:
            made.setsockopt(level, option, value)
        made.bind(address)
    except BaseException:
        made.close()
        raise
    return made
