"""`kill -9` of a node between delivery and acknowledgement: nothing is lost, and redelivery is marked."""

import asyncio
from collections.abc import Iterator

import pytest

from doors.stomp.peer import Peer
from nuncius import testing
from nuncius.doors.stomp.frames.codec import Frame

# The door is measured by its other tests.
pytestmark = pytest.mark.usefixtures("unmeasured")
ROUNDS = 3


@pytest.fixture
def port() -> int:
    return testing.free_port()


@pytest.fixture
def node(port: int) -> Iterator[testing.Broker]:
    with testing.broker(f"--stomp-port={port}") as running:
        yield running


async def connect(port: int) -> Peer:
    peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
    peer.send("CONNECT", accept_version="1.2", host="localhost")
    await peer.expect("CONNECTED")
    return peer


async def kill(node: testing.Broker, peer: Peer) -> None:
    await asyncio.to_thread(node.kill)
    await peer.closed()
    await peer.close()
    await asyncio.to_thread(node.start)


async def test_a_queue(node: testing.Broker, port: int) -> None:
    """Acknowledged messages are gone, the others come again under the same ids, marked, with their
    attempts."""
    peer = await connect(port)
    for n in range(10):
        await peer.ask("SEND", b"%d" % n, destination="/queue/jobs")
    left = {b"%d" % n: "" for n in range(10)}
    for attempt in range(1, ROUNDS + 1):
        await peer.subscribe("/queue/jobs", ack="client-individual")
        messages = await peer.messages(len(left))
        assert {message.body for message in messages} == set(left)
        for message in messages:
            check(message, attempt, left[message.body])
            left[message.body] = message.headers["message-id"]
        done = messages[0]
        await peer.ask("ACK", id=done.headers["ack"])
        del left[done.body]
        await kill(node, peer)
        peer = await connect(port)
    await peer.close()


def check(message: Frame, attempt: int, known_as: str) -> None:
    headers = message.headers
    if attempt > 1:
        assert (headers["redelivered"], headers["attempt"]) == ("true", str(attempt))
        assert headers["message-id"] == known_as
    else:
        assert "redelivered" not in headers


async def test_settings() -> None:
    """How often and how soon a message comes again are options of the node."""
    port = testing.free_port()
    with testing.broker(f"--stomp-port={port}", "--max-attempts=2", "--retry-delay=0"):
        peer = await connect(port)
        await peer.subscribe("/queue/dead/jobs", id="dead")
        await peer.subscribe("/queue/jobs", ack="client")
        await peer.ask("SEND", b"poison", destination="/queue/jobs")
        for _ in range(2):
            (message,) = await peer.messages(1)
            await peer.ask("NACK", id=message.headers["ack"])
        (dead,) = await peer.messages(1)
        assert dead.headers["dead-attempts"] == "2"
        await peer.close()


async def test_a_durable_subscription(node: testing.Broker, port: int) -> None:
    """What was acknowledged does not come again, everything else does, in order, and marked."""
    peer = await connect(port)
    await peer.subscribe("/topic/news", ack="client", durable="bob")
    for n in range(10):
        await peer.ask("SEND", b"%d" % n, destination="/topic/news")
    messages = await peer.messages(10)
    await peer.ask("ACK", id=messages[3].headers["ack"])
    await kill(node, peer)
    peer = await connect(port)
    await peer.subscribe("/topic/news", ack="client", durable="bob")
    await peer.ask("SEND", b"10", destination="/topic/news")
    again = await peer.messages(7)
    assert [int(message.body) for message in again] == list(range(4, 11))
    assert [message.headers.get("redelivered") for message in again] == ["true"] * 6 + [None]
    assert again[0].headers["message-id"] == messages[4].headers["message-id"]
    await peer.close()


async def test_receipts_survive(node: testing.Broker, port: int) -> None:
    """Every SEND whose receipt came is stored, in order and once; a transaction is stored whole or not at
    all."""
    peer = await connect(port)
    for n in range(500):
        peer.send("SEND", b"%d" % n, destination="/topic/news", receipt=str(n))
    for n in range(10):
        peer.send("BEGIN", transaction=str(n))
        for _ in range(3):
            peer.send("SEND", b"%d" % n, destination="/topic/pairs", transaction=str(n))
        peer.send("COMMIT", transaction=str(n), receipt=f"t{n}")
    receipts = [(await peer.expect("RECEIPT")).headers["receipt-id"] for _ in range(100)]
    await asyncio.to_thread(node.kill)
    try:
        while True:
            receipts.append((await peer.expect("RECEIPT")).headers["receipt-id"])
    except (EOFError, ConnectionResetError):
        await peer.close()
    await asyncio.to_thread(node.start)
    peer = await connect(port)
    await peer.subscribe("/topic/news", start="earliest")
    await peer.ask("SEND", b"end", destination="/topic/news")
    stored: list[bytes] = []
    while not stored or stored[-1] != b"end":
        stored += await peer.bodies(1)
    assert stored[:-1] == [b"%d" % n for n in range(len(stored) - 1)]
    assert len(stored) - 1 >= len([r for r in receipts if not r.startswith("t")])
    await peer.subscribe("/topic/pairs", id="pairs", start="earliest")
    await peer.ask("SEND", b"end", destination="/topic/pairs")
    pairs: list[bytes] = []
    while not pairs or pairs[-1] != b"end":
        pairs += await peer.bodies(1)
    committed = [r for r in receipts if r.startswith("t")]
    assert pairs[:-1] == [b"%d" % n for n in range(len(pairs) // 3) for _ in range(3)]
    assert len(pairs) // 3 >= len(committed)
    await peer.close()
