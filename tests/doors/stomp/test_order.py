"""The order over several topics: what one connection sends comes to a subscriber of them in that order."""

import asyncio

import pytest

from doors.stomp.peer import Node, Peer, connected, stranger

CONNECT = b"CONNECT\nlogin:me\n\n\0"
TOPICS = ("news", "stocks")  # of the even and of the odd messages
REPORTED = 33  # messages in the report's example
MANY = 20_000


def slim_send(n: int) -> bytes:
    return f"SEND\ntopic:{TOPICS[n % 2]}\n\nprice: 22.{n}\n\n\0".encode()


def slim_message(n: int) -> bytes:
    return f"MESSAGE\ndestination:{TOPICS[n % 2]}\n\nprice: 22.{n}\n\n\0".encode()


async def slim_subscriber(peer: Peer) -> None:
    """Connects as the authors' client does. A SEND that has to fail says when the subscriptions stand."""
    peer.write(CONNECT)
    for topic in reversed(TOPICS):
        peer.write(f"SUBSCRIBE\ndestination:{topic}\n\n\0".encode())
    peer.write(b"SEND\ntopic:nobody\n\nhello\n\n\0")
    expected = b"CONNECTED\n\n\0ERROR\nmessage:Failed to add message\n\n\0"
    assert await peer.read(len(expected)) == expected


@pytest.mark.parametrize("count", [REPORTED, MANY])
async def test_the_authors_client(node: Node, count: int) -> None:
    """Messages of the report's client come in the order in which they were sent, over both topics."""
    async with stranger(node) as subscriber, stranger(node) as sender:
        await slim_subscriber(subscriber)
        sender.write(CONNECT + b"".join(map(slim_send, range(count))) + b"DISCONNECT\n\n\0")
        expected = b"".join(map(slim_message, range(count)))
        assert await subscriber.read(len(expected)) == expected


async def test_one_message_after_the_other(node: Node) -> None:
    """So do messages of which each is sent when the one before has been stored."""
    async with stranger(node) as subscriber, connected(node) as sender:
        await slim_subscriber(subscriber)
        for n in range(REPORTED):
            await sender.ask("SEND", b"price: 22.%d" % n, destination=TOPICS[n % 2])
        expected = b"".join(map(slim_message, range(REPORTED)))
        assert await subscriber.read(len(expected)) == expected


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    "headers", [{}, {"ack": "client-individual"}, {"durable": "me", "ack": "client-individual"}]
)
async def test_all_kinds_of_subscriptions(node: Node, headers: dict[str, str], partitions: int) -> None:
    """So do messages to subscribers that acknowledge or are durable, and of topics with partitions."""
    for topic in TOPICS:
        await node.broker.topics.create(topic, partitions)
    async with connected(node) as subscriber, connected(node) as sender:
        for topic in TOPICS:
            named = {"durable": topic} if "durable" in headers else {}
            await subscriber.subscribe(topic, id=topic, **{**headers, **named})
        for n in range(MANY):
            sender.send("SEND", b"%d" % n, destination=TOPICS[n % 2])
        for n in range(MANY):
            message = await subscriber.expect("MESSAGE")
            assert message.body == b"%d" % n
            if headers:
                subscriber.send("ACK", id=message.headers["ack"])
        await subscriber.ask("DISCONNECT")


async def test_transactions(ann: Peer, bob: Peer) -> None:
    """So do messages of transactions, among those before and behind them."""
    for topic in TOPICS:
        await bob.subscribe(topic, id=topic)
    for n in range(0, 300, 3):
        ann.send("SEND", b"%d" % n, destination="news")
        ann.send("BEGIN", transaction=str(n))
        ann.send("SEND", b"%d" % (n + 1), destination="stocks", transaction=str(n))
        ann.send("SEND", b"%d" % (n + 2), destination="news", transaction=str(n))
        ann.send("COMMIT", transaction=str(n))
    assert await bob.bodies(300) == [b"%d" % n for n in range(300)]


async def test_several_senders(node: Node, bob: Peer) -> None:
    """Messages of each of several senders come in its order."""
    topics = [f"t{n}" for n in range(5)]
    for topic in topics:
        await bob.subscribe(topic, id=topic)

    async def send(name: int) -> None:
        async with connected(node) as sender:
            for n in range(1000):
                sender.send("SEND", b"%d %d" % (name, n), destination=topics[(n * (name + 1)) % 5])
            await sender.ask("DISCONNECT")

    await asyncio.gather(*map(send, range(4)))
    came: dict[bytes, list[int]] = {}
    for body in await bob.bodies(4000):
        name, _, n = body.partition(b" ")
        came.setdefault(name, []).append(int(n))
    assert list(came.values()) == [list(range(1000))] * 4
