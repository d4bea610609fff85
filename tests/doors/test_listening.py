"""Listening sockets of doors, opened before there is a door."""

import asyncio
import errno
import socket
from typing import Any

import pytest

from nuncius.broker import Broker
from nuncius.doors import listening
from nuncius.doors.wire import Wire
from nuncius.node.shared_port import TelestoDoor

TWO = ("127.0.0.1", "127.0.0.2")  # as a name may stand for both families' loopback


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> str:
    """A host with two addresses."""
    look_up = socket.getaddrinfo

    def find(host: str | None, *arguments: Any, **options: Any) -> Any:
        hosts = TWO if host == "two" else (host,)
        return [found for each in hosts for found in look_up(each, *arguments, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", find)
    return "two"


async def test_one_port_for_all_addresses_of_a_name(broker: Broker, name: str) -> None:
    """Where a host has several addresses, any free port is the same one on all of them."""
    door = TelestoDoor(broker)
    port = await door.open(name, 0)
    try:
        for address in TWO:
            _, writer = await asyncio.open_connection(address, port)
            writer.close()
    finally:
        await door.close()


def test_a_number_that_one_address_has_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that is free on one address only is passed over, or refused if it was asked for."""
    with socket.create_server(("127.0.0.2", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            listening.listen(name, number)
        with socket.create_server(("127.0.0.1", number)):
            pass  # nothing of the attempt above is left open
        tried: list[int] = []
        bind = socket.socket.bind

        def offer(self: socket.socket, address: tuple[str, int]) -> None:
            tried.append(address[1])
            bind(self, (address[0], number) if len(tried) == 1 else address)

        monkeypatch.setattr(socket.socket, "bind", offer)
        sockets = listening.listen(name, 0)
        assert listening.port_of(sockets) not in {0, number}
        assert tried == [0, number, 0, listening.port_of(sockets)]
        listening.close(sockets)


def test_an_address_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address of a name that this machine does not have is left out, unless it has none of them."""
    look_up = socket.getaddrinfo
    hosts = ["192.0.2.1", "127.0.0.1"]
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **options: [found for each in hosts for found in look_up(each, *rest, **options)],
    )
    (only,) = listening.listen("name", 0)
    assert only.getsockname()[0] == "127.0.0.1"
    only.close()
    hosts.pop()
    with pytest.raises(OSError, match="assign") as refused:
        listening.listen("name", 0)
    assert refused.value.errno == errno.EADDRNOTAVAIL


async def test_a_connection_from_before_the_door(broker: Broker) -> None:
    """What connects, and speaks, before a door serves its sockets is answered when it does."""
    sockets = listening.listen("127.0.0.1", 0)
    port = listening.port_of(sockets)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x00" * 4)
    door = Listener(broker)
    assert await door.open("127.0.0.1", port, sockets=sockets) == port
    assert await reader.readexactly(4) == b"\x00" * 4
    writer.close()
    await door.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


class Echo:
    """A session that sends back what it gets."""

    speaks = "echo"

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def received(self, data: bytes) -> None:
        self._wire.send(data)

    def lost(self) -> None:
        pass

    async def finish(self) -> None:
        self._wire.close()

    def break_off(self, reason: str) -> None:
        self._wire.close()


class Listener(TelestoDoor):
    def greet(self, wire: Wire) -> Echo:
        return Echo(wire)
