"""The slim dialect of the report, byte for byte."""

import asyncio

import pytest

from doors.stomp.peer import Node, Peer, connected, stranger, until_left
from nuncius.doors.stomp import slim
from nuncius.store.pressure import TOO_SLOW
from racing import until

CONNECTED = b"CONNECTED\n\n\0"
EXPECTED_CONNECT = b"ERROR\nmessage:Expected CONNECT\n\n\0"
FAILED_TO_ADD = b"ERROR\nmessage:Failed to add message\n\n\0"
FAILED_TO_SUBSCRIBE = b"ERROR\nmessage:Failed to subscribe\n\n\0"


async def hears(peer: Peer, expected: bytes) -> None:
    assert await peer.read(len(expected)) == expected


async def hears_the_end(peer: Peer) -> None:
    with pytest.raises(asyncio.IncompleteReadError) as caught:
        await peer.read(1)
    assert caught.value.partial == b""


async def connect(peer: Peer, *topics: bytes) -> None:
    """Connects and subscribes. A SEND that has to fail says when the subscriptions stand."""
    peer.write(b"CONNECT\nlogin:me\n\n\0")
    await hears(peer, CONNECTED)
    for topic in topics:
        peer.write(b"SUBSCRIBE\ndestination:" + topic + b"\n\n\0")
    peer.write(b"SEND\ntopic:nobody\n\nhello\n\n\0")
    await hears(peer, FAILED_TO_ADD)


def message(topic: bytes, body: bytes) -> bytes:
    return b"MESSAGE\ndestination:" + topic + b"\n\n" + body + b"\n\n\0"


async def test_the_whole_session(node: Node) -> None:
    """CONNECT, SUBSCRIBE, SEND, MESSAGE, DISCONNECT, RECEIPT, and the end."""
    async with stranger(node) as peer:
        peer.write(b"CONNECT\nlogin:me\n\n\0")
        await hears(peer, b"CONNECTED\n\n\0")
        peer.write(b"SUBSCRIBE\ndestination:stocks\n\n\0")
        peer.write(b"SEND\ntopic:stocks\n\nprice: 22.1\n\n\0")
        await hears(peer, b"MESSAGE\ndestination:stocks\n\nprice: 22.1\n\n\0")
        peer.write(b"DISCONNECT\n\n\0")
        await hears(peer, b"RECEIPT\n\n\0")
        await hears_the_end(peer)


async def test_the_authors_client(node: Node) -> None:
    """One connection subscribes to two topics, another of the same name sends to both: each topic is in
    order."""
    async with stranger(node) as subscriber, stranger(node) as sender:
        await connect(subscriber, b"stocks", b"news")
        sender.write(b"CONNECT\nlogin:me\n\n\0")
        await hears(sender, CONNECTED)
        for n in range(20):
            topic = b"news" if n % 2 == 0 else b"stocks"
            sender.write(b"SEND\ntopic:" + topic + b"\n\nprice: 22.%d\n\n\0" % n)
        sender.write(b"DISCONNECT\n\n\0")
        await hears(sender, b"RECEIPT\n\n\0")
        await hears_the_end(sender)
        received: dict[bytes, list[bytes]] = {b"news": [], b"stocks": []}
        for _ in range(20):
            data = b""
            while not data.endswith(b"\0"):
                data += await subscriber.read(1)
            head, _, body = data.removesuffix(b"\n\n\0").partition(b"\n\n")
            received[head.removeprefix(b"MESSAGE\ndestination:")].append(body)
        assert received[b"news"] == [b"price: 22.%d" % n for n in range(0, 20, 2)]
        assert received[b"stocks"] == [b"price: 22.%d" % n for n in range(1, 20, 2)]


async def test_there_are_no_patterns(node: Node) -> None:
    """The slim dialect knows no patterns, so every character stands for itself."""
    async with stranger(node) as peer:
        await connect(peer, b"a.*", b"a.b")
        peer.write(b"SEND\ntopic:a.b\n\n1\n\n\0SEND\ntopic:a.*\n\n2\n\n\0")
        await hears(peer, message(b"a.b", b"1") + message(b"a.*", b"2"))


async def test_one_byte_at_a_time(node: Node) -> None:
    """Frames may come in any pieces."""
    async with stranger(node) as peer:
        for (
            byte
        ) in b"CONNECT\nlogin:me\n\n\0SUBSCRIBE\ndestination:a\n\n\0SEND\ntopic:a\n\nx\n\n\0DISCONNECT\n\n\0":
            peer.write(bytes([byte]))
            await asyncio.sleep(0)
        await hears(peer, CONNECTED)
        rest = b""
        while not rest.endswith(b"RECEIPT\n\n\0"):
            rest += await peer.read(1)
        assert rest in (b"RECEIPT\n\n\0", message(b"a", b"x") + b"RECEIPT\n\n\0")


@pytest.mark.parametrize(
    "first",
    [
        b"SEND\ntopic:a\n\nx\n\n\0",
        b"SUBSCRIBE\ndestination:a\n\n\0",
        b"DISCONNECT\n\n\0",
        b"CONNECT\n\0",
        b"CONNECT\nlogin\n\n\0",
        b"CONNECT\nlogin:a\n\nbody\n\n\0",
        b"connect\nlogin:a\n\n\0",
        b"\xff\xfe\0",
        b"\0",
    ],
)
async def test_anything_before_connect(node: Node, first: bytes) -> None:
    """Anything before CONNECT, or unreadable, is answered with ERROR; the connection stays open."""
    async with stranger(node) as peer:
        for _ in range(2):
            peer.write(first)
            await hears(peer, EXPECTED_CONNECT)
        await connect(peer)


async def test_unreadable_frames_later(node: Node) -> None:
    """Also after CONNECT an unreadable frame is answered with ERROR, and the connection stays open."""
    async with stranger(node) as peer:
        await connect(peer)
        for frame in (b"NONSENSE\n\n\0", b"SEND\nno colon\n\nx\n\n\0", b"\xff\0", b"ACK\nid:1\n\n\0"):
            peer.write(frame)
            await hears(peer, EXPECTED_CONNECT)
        peer.write(b"CONNECT\nlogin:me\n\n\0")
        await hears(peer, b"ERROR\nmessage:Already connected\n\n\0")
        peer.write(b"DISCONNECT\n\n\0")
        await hears(peer, b"RECEIPT\n\n\0")


async def test_a_topic_that_nobody_subscribed_to(node: Node) -> None:
    """A SEND to it is answered with ERROR, and makes no topic; when somebody subscribes to it, it works."""
    async with stranger(node) as peer:
        await connect(peer)
        peer.write(b"SEND\ntopic:a\n\nx\n\n\0")
        await hears(peer, FAILED_TO_ADD)
        assert await node.broker.topics.find() == []
        await connect_another_to(node, b"a", peer)
        await until_left(node, 1)
        peer.write(b"SEND\ntopic:a\n\nx\n\n\0")
        await hears(peer, FAILED_TO_ADD)


async def connect_another_to(node: Node, topic: bytes, sender: Peer) -> None:
    async with stranger(node) as other:
        await connect(other, topic)
        sender.write(b"SEND\ntopic:" + topic + b"\n\ny\n\n\0")
        await hears(other, message(topic, b"y"))


@pytest.mark.parametrize(
    "frame",
    [
        b"SEND\n\nx\n\n\0",
        b"SEND\ntopic:\n\nx\n\n\0",
        b"SEND\ntopic:/queue/a\n\nx\n\n\0",
        b"SEND\ndestination:a\n\nx\n\n\0",
    ],
)
async def test_a_send_without_a_topic(node: Node, frame: bytes) -> None:
    """It cannot be added."""
    async with stranger(node) as peer:
        await connect(peer)
        peer.write(frame)
        await hears(peer, FAILED_TO_ADD)


@pytest.mark.parametrize(
    "destination", [b"", b"\ndestination:", b"\ndestination:/queue/a", b"\ndestination:\x01"]
)
async def test_a_subscribe_that_fails(node: Node, destination: bytes) -> None:
    """The client learns it, and the connection stays open."""
    async with stranger(node) as peer:
        await connect(peer)
        peer.write(b"SUBSCRIBE" + destination + b"\n\n\0")
        await hears(peer, FAILED_TO_SUBSCRIBE)
        peer.write(b"DISCONNECT\n\n\0")
        await hears(peer, b"RECEIPT\n\n\0")


async def test_a_double_subscribe(node: Node) -> None:
    """Who subscribes twice gets everything once."""
    async with stranger(node) as peer:
        await connect(peer, b"a", b"a", b"/topic/a")
        for n in range(3):
            peer.write(b"SEND\ntopic:a\n\n%d\n\n\0" % n)
        for n in range(3):
            await hears(peer, message(b"a", b"%d" % n))


async def test_bodies(node: Node) -> None:
    """The blank line before the NUL belongs to the frame; everything else is the body, blank lines, too."""
    async with stranger(node) as peer:
        await connect(peer, b"a")
        for sent, received in [
            (b"x\n\n", b"x"),
            (b"x", b"x"),
            (b"x\n", b"x\n"),
            (b"\n\n", b""),
            (b"", b""),
            (b"a\n\nb\n\n\n\n", b"a\n\nb\n\n"),
            (b" a:b \n\n", b" a:b "),
        ]:
            peer.write(b"SEND\ntopic:a\n\n" + sent + b"\0")
            await hears(peer, message(b"a", received))


async def test_nothing_after_disconnect(node: Node, ann: Peer) -> None:
    """What comes behind a DISCONNECT is not looked at."""
    await ann.subscribe("a")
    async with stranger(node) as peer:
        await connect(peer)
        peer.write(b"SUBSCRIBE\ndestination:a\n\n\0DISCONNECT\n\n\0SEND\ntopic:a\n\nlate\n\n\0")
        await hears(peer, b"RECEIPT\n\n\0")
        await hears_the_end(peer)
    await ann.ask("SEND", b"x", destination="a")
    assert await ann.bodies(1) == [b"x"]


async def test_line_ends_between_frames(node: Node) -> None:
    """Line ends after a frame are passed over."""
    async with stranger(node) as peer:
        peer.write(b"\nCONNECT\nlogin:me\n\n\0\n\nSEND\ntopic:a\n\nx\n\n\0\n")
        await hears(peer, CONNECTED + FAILED_TO_ADD)


async def test_real_and_slim_clients_meet(node: Node, ann: Peer) -> None:
    """Both dialects live on one port and see the same topics. NULs cannot be told in the slim one."""
    await ann.subscribe("/topic/a")
    async with stranger(node) as peer:
        await connect(peer, b"a")
        peer.write(b"SEND\ntopic:a\n\nfrom slim\n\n\0")
        await hears(peer, message(b"a", b"from slim"))
        assert await ann.bodies(1) == [b"from slim"]
        await ann.ask("SEND", b"from \0real", destination="a", content_length="10")
        await hears(peer, message(b"a", b"from real"))
        async with node.client() as client:
            await client.publish("a", b"from native")
        await hears(peer, message(b"a", b"from native"))


async def test_subscribers_of_other_doors_count(node: Node) -> None:
    """Somebody who subscribed through another door is somebody, too."""
    async with node.client() as client, stranger(node) as peer:
        subscription = await client.subscribe("a", "native")
        await connect(peer)
        for n in range(2):
            peer.write(b"SEND\ntopic:a\n\n%d\n\n\0" % n)
        seen: list[str] = []
        while len(seen) < 2:
            seen += [entry.text for entry in await subscription.next_batch(20)]
        assert seen == ["0", "1"]


async def test_a_frame_that_does_not_end(node: Node) -> None:
    """Nobody can make the node keep any number of bytes: such a connection ends."""
    async with stranger(node) as peer:
        peer.write(b"x" * 100_000)
        await hears(peer, b"ERROR\nmessage:Frame too large\n\n\0")
        await hears_the_end(peer)
    async with stranger(node) as peer:
        await connect(peer)
        peer.write(b"SEND\ntopic:a\n\n" + b"x" * (9 << 20))
        await hears(peer, b"ERROR\nmessage:Frame too large\n\n\0")
    await until_left(node, 0)
    assert node.broker.pressure.held == 0


async def test_too_many_frames_that_do_not_end(node: Node, ann: Peer) -> None:
    """The memory for frames that have begun is limited for the whole node; the largest ends."""
    node.broker.pressure.budget = 6 << 20
    async with stranger(node) as peer:
        await connect(peer)
        peer.write(b"SEND\ntopic:a\n\n" + b"x" * (2 << 20))
        await until(lambda: node.broker.pressure.held > 2 << 20)
        ann.write(b"SEND\ndestination:a\ncontent-length:8000000\n\n" + b"x" * (2 << 20))
        await hears(peer, b"ERROR\nmessage:" + TOO_SLOW.encode() + b"\n\n\0")
    await ann.close()
    await until_left(node, 0)
    assert node.broker.pressure.held == 0


async def test_too_large_a_message(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message over the broker's limit cannot be added."""
    monkeypatch.setattr(slim, "MAX_HEAD", 9 << 20)
    async with stranger(node) as peer:
        await connect(peer, b"a")
        peer.write(b"SEND\ntopic:a\n\n" + b"x" * ((8 << 20) + 1) + b"\n\n\0")
        await hears(peer, FAILED_TO_ADD)


async def test_too_many_subscriptions(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection has a limited number of subscriptions."""
    monkeypatch.setattr(slim, "MAX_SUBSCRIPTIONS", 1)
    async with stranger(node) as peer:
        await connect(peer, b"a")
        peer.write(b"SUBSCRIBE\ndestination:b\n\n\0")
        await hears(peer, FAILED_TO_SUBSCRIBE)


async def test_a_topic_that_is_deleted(node: Node) -> None:
    """Its subscribers learn it; the connection stays open, and they may subscribe again."""
    async with stranger(node) as peer:
        await connect(peer, b"a")
        await node.broker.topics.delete("a")
        await hears(peer, b"ERROR\nmessage:topic 'a' was deleted\n\n\0")
        peer.write(b"SUBSCRIBE\ndestination:a\n\n\0SEND\ntopic:a\n\nx\n\n\0")
        await hears(peer, message(b"a", b"x"))


async def test_a_publisher_that_closes_early(node: Node, ann: Peer) -> None:
    """What has arrived is carried out, though its sender is gone by then."""
    await ann.subscribe("a")
    async with stranger(node) as peer:
        peer.write(b"CONNECT\nlogin:me\n\n\0" + b"SUBSCRIBE\ndestination:a\n\n\0" * 2)
        peer.write(b"".join(b"SEND\ntopic:a\n\n%d\n\n\0" % n for n in range(10)))
    assert await ann.bodies(10) == [b"%d" % n for n in range(10)]
    await until_left(node, 1)
    assert [found.subscriber for found in await node.broker.subscriptions.list("a")] != []


async def test_the_end_of_the_node(node: Node) -> None:
    """A node that shuts down closes the connection."""
    async with stranger(node) as peer, stranger(node) as silent, connected(node) as real:
        await connect(peer, b"a")
        await node.door.close()
        await hears_the_end(peer)
        await hears_the_end(silent)
        assert (await real.error()).headers["message"] == "the node is shutting down"
