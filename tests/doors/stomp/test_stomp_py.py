"""stomp.py, unmodified, in all versions."""

from collections.abc import Iterator
from typing import Any

import pytest

from doors.stomp.threads import node_in_a_thread, stomp_py
from nuncius.doors.stomp.frames.versions import Version


@pytest.fixture
def port(dsn: str) -> Iterator[int]:
    with node_in_a_thread(dsn, heart_beat_ms=50) as opened:
        yield opened


def acknowledge(connection: Any, version: Version, message: Any, verb: str = "ack") -> None:
    """By what each version acknowledges a message."""
    headers = message.headers
    arguments = {
        Version.V10: [headers["message-id"]],
        Version.V11: [headers["message-id"], headers.get("subscription")],
        Version.V12: [headers.get("ack")],
    }
    getattr(connection, verb)(*arguments[version])


def test_a_topic(port: int, version: Version) -> None:
    """What is sent to a topic comes to its subscribers, with its headers."""
    with stomp_py(port, version) as (connection, ear):
        connection.subscribe("/topic/a", id="1")
        connection.send("/topic/a", "hällo", content_type="text/plain", headers={"x": "y:z"}, receipt="r")
        message = ear.message()
        assert (message.body, message.headers["x"]) == ("hällo", "y:z")
        assert message.headers["content-type"] == "text/plain"
        assert message.headers["subscription"] == "1"
        assert ear.receipt() == "r"
        connection.unsubscribe(id="1")


def test_a_queue(port: int, version: Version) -> None:
    """A message of a queue is acknowledged; one that is not comes again, marked, to the next consumer."""
    with stomp_py(port, version) as (connection, ear):
        connection.subscribe("/queue/a", id="1", ack="client-individual")
        for body in ("1", "2"):
            connection.send("/queue/a", body, receipt=body)
        first, second = ear.message(), ear.message()
        assert (first.body, second.body) == ("1", "2")
        acknowledge(connection, version, second)
        if version is not Version.V10:
            acknowledge(connection, version, first, "nack")
            again = ear.message()
            assert (again.body, again.headers["redelivered"]) == ("1", "true")
            acknowledge(connection, version, again)
            return
    with stomp_py(port, version) as (connection, ear):
        connection.subscribe("/queue/a", id="1", ack="client")
        again = ear.message()
        assert again.body == "1"
        acknowledge(connection, version, again)


def test_a_transaction(port: int, version: Version) -> None:
    """What is committed comes, what is aborted does not."""
    with stomp_py(port, version) as (connection, ear):
        connection.subscribe("/queue/a", id="1")
        for end in ("abort", "commit"):
            name = connection.begin()
            connection.send("/queue/a", end, transaction=name)
            getattr(connection, end)(name)
        assert ear.message().body == "commit"


def test_an_error(port: int, version: Version) -> None:
    """The client learns what went wrong, and that the connection has ended."""
    with stomp_py(port, version) as (connection, ear):
        connection.send("/nowhere/a", "x", receipt="r")
        error = ear.error()
        assert "/queue/NAME" in error.headers["message"]
        assert error.headers["receipt-id"] == "r"
        ear.end()


def test_durable(port: int, version: Version) -> None:
    """A durable subscriber gets what came while it was away."""
    for expected in ("1", "2"):
        with stomp_py(port, version) as (connection, ear):
            connection.subscribe(
                "/topic/a", id="1", ack="auto", headers={"durable": "me", "start": "earliest"}
            )
            connection.send("/topic/a", expected)
            assert ear.message().body == expected


@pytest.mark.parametrize("version", [Version.V11, Version.V12], indirect=True)
def test_heart_beats(port: int, version: Version) -> None:
    """Both sides beat, and both stay."""
    # By default it gives up on a beat that is half its time late, and the machine may be busy: 3 s of silence
    # are a fault on any machine.
    patient: dict[str, Any] = {"heartbeats": (100, 100), "heart_beat_receive_scale": 30}
    with stomp_py(port, version, **patient) as (connection, ear):
        connection.subscribe("/topic/a", id="1")
        for _ in range(5):
            ear.beat()
        for n in range(20):
            connection.send("/topic/a", str(n))
            assert ear.message().body == str(n)
        assert connection.is_connected()


def test_bytes(port: int, version: Version) -> None:
    """Bodies are bytes: NULs, line ends, anything."""
    body = bytes(range(256))
    with stomp_py(port, version, auto_decode=False) as (connection, ear):
        connection.subscribe("/queue/a", id="1")
        connection.send("/queue/a", body)
        assert ear.message().body == body


def test_a_login_without_a_passcode(port: int, version: Version) -> None:
    """Nobody needs a passcode: not for a first SEND, nor for a first SUBSCRIBE."""
    with stomp_py(port, version, passcode=None) as (sender, ear):
        sender.send("/queue/a", "x", receipt="r")
        assert ear.receipt() == "r"
    with stomp_py(port, version, passcode=None) as (connection, ear):
        connection.subscribe("/queue/a", id="1", ack="client")
        message = ear.message()
        assert message.body == "x"
        acknowledge(connection, version, message)
