"""Sessions: order, receipts, heart-beats, the end."""

import asyncio

import pytest

from broker.inside import until_waiting_for
from doors.stomp.peer import Node, Peer, connected, running_node, stranger, until_left
from nuncius.broker.caller import Caller
from nuncius.broker.model import Queue
from nuncius.doors.stomp.frames.codec import Frame, FrameLimits
from nuncius.doors.stomp.frames.versions import Version
from nuncius.doors.stomp.subscriptions import subscribing
from nuncius.store.pressure import TOO_SLOW
from racing import until


async def test_receipts_come_in_order(ann: Peer) -> None:
    """Whatever the frames are, their receipts come in the order in which the frames were sent."""
    ann.send("SUBSCRIBE", id="0", destination="/queue/a", receipt="0")
    for n in range(1, 100):
        destination = ("/queue/a", "/topic/b", "/queue/c")[n % 3]
        own = {"message_id": str(n)} if n % 7 == 0 else {}
        ann.send("SEND", b"x", destination=destination, receipt=str(n), **own)
    receipts: list[int] = []
    while len(receipts) < 100:
        frame = await ann.frame()
        if frame.command == "RECEIPT":
            receipts.append(int(frame.headers["receipt-id"]))
    assert receipts == list(range(100))


async def test_a_receipt_means_committed(node: Node, ann: Peer) -> None:
    """When the receipt of a SEND has come, the message is there for everybody."""
    async with node.client() as client:
        for n in range(10):
            await ann.ask("SEND", b"%d" % n, destination="/topic/a")
            assert (await client.fetch("a", 1, n, 1))[0].text == str(n)


async def test_who_subscribes_and_then_sends(ann: Peer) -> None:
    """Frames are carried out in their order: a message sent right behind the SUBSCRIBE is received."""
    ann.send("SUBSCRIBE", id="0", destination="/topic/a")
    ann.send("SEND", b"mine", destination="/topic/a")
    assert await ann.bodies(1) == [b"mine"]


@pytest.mark.parametrize("count", [1, 250])
@pytest.mark.parametrize("destination", ["/topic/a", "/queue/b"])
async def test_own_messages_come_before_the_goodbye(ann: Peer, destination: str, count: int) -> None:
    """A connection that sends to itself and then says DISCONNECT gets its messages before the RECEIPT."""
    ann.send("SUBSCRIBE", id="0", destination=destination)
    for n in range(count):
        ann.send("SEND", b"%d" % n, destination=destination, receipt=str(n))
    ann.send("DISCONNECT", receipt="bye")
    frames = [await ann.frame() for _ in range(2 * count + 1)]
    assert frames[-1] == Frame("RECEIPT", {"receipt-id": "bye"})
    assert [each.body for each in frames if each.command == "MESSAGE"] == [b"%d" % n for n in range(count)]
    await ann.closed()


async def test_own_messages_of_a_transaction_come_before_the_goodbye(ann: Peer) -> None:
    """So does what it sends to itself in a transaction."""
    ann.send("SUBSCRIBE", id="0", destination="/topic/a")
    ann.send("BEGIN", transaction="t")
    ann.send("SEND", b"mine", destination="/topic/a", transaction="t")
    ann.send("COMMIT", transaction="t")
    ann.send("DISCONNECT", receipt="bye")
    assert await ann.bodies(1) == [b"mine"]
    assert (await ann.expect("RECEIPT")).headers == {"receipt-id": "bye"}


async def test_subscribe_and_unsubscribe_at_once(ann: Peer) -> None:
    """Frames that change subscriptions do not overtake each other."""
    for n in range(10):
        ann.send("SUBSCRIBE", id="0", destination=("/topic/a", "/queue/b")[n % 2], ack="client")
        ann.send("UNSUBSCRIBE", id="0")
    await ann.ask("SEND", b"x", destination="/topic/a")
    ann.send("SUBSCRIBE", id="0", destination="/topic/a", start="earliest")
    assert await ann.bodies(1) == [b"x"]


async def test_an_error_comes_after_what_went_well(ann: Peer) -> None:
    """Frames before the one that fails are answered, frames behind it are not."""
    for n in range(20):
        ann.send("SEND", b"x", destination="/topic/a", receipt=str(n))
    ann.write(b"nonsense\n:\n\n\0")
    ann.send("SEND", b"x", destination="/topic/a", receipt="late")
    for n in range(20):
        assert await ann.expect("RECEIPT") == Frame("RECEIPT", {"receipt-id": str(n)})
    await ann.error()


async def test_nonsense_behind_a_subscribe(ann: Peer) -> None:
    """An unreadable frame waits for its turn, too."""
    ann.send("SUBSCRIBE", id="0", destination="/topic/a", receipt="1")
    ann.send("SEND", b"x", destination="/topic/a", receipt="2")
    ann.write(b"nonsense\n:\n\n\0")
    frames = [await ann.frame() for _ in range(3)]
    answers = [frame for frame in frames if frame.command != "MESSAGE"]
    assert [frame.headers.get("receipt-id") for frame in answers[:2]] == ["1", "2"]
    if len(answers) == 2:
        answers.append(await ann.frame())
    assert answers[2].command == "ERROR"


async def test_a_receipt_is_no_lie(node: Node, ann: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that breaks off is told nothing of frames that stood in line and were not carried out."""
    opened = asyncio.Event()
    ensure = node.broker.queues.ensure

    async def slowly(name: str, *, caller: Caller) -> Queue:
        await opened.wait()
        return await ensure(name, caller=caller)

    await ann.subscribe("/topic/news")
    (wire,) = node.door.wires
    monkeypatch.setattr(node.broker.queues, "ensure", slowly)
    ann.send("SUBSCRIBE", id="1", destination="/queue/jobs", receipt="subscribed")
    ann.send("SEND", b"x", destination="/topic/other", receipt="sent")
    await until(lambda: wire.session._line._behind)  # type: ignore[attr-defined]  # noqa: SLF001
    await node.broker.topics.delete("news")
    await until(lambda: wire.session._line.is_closed)  # type: ignore[attr-defined]  # noqa: SLF001
    opened.set()
    assert await ann.expect("RECEIPT") == Frame("RECEIPT", {"receipt-id": "subscribed"})
    assert "news" in (await ann.error()).headers["message"]
    assert await node.broker.topics.find(["other"]) == []


async def test_disconnect_behind_a_subscribe(ann: Peer, bob: Peer) -> None:
    """DISCONNECT waits for its turn; what comes behind it, at once or later, is not looked at."""
    await bob.subscribe("/topic/a")
    ann.send("SUBSCRIBE", id="0", destination="/topic/b", receipt="1")
    ann.send("DISCONNECT", receipt="2")
    ann.send("SEND", b"late", destination="/topic/a", receipt="3")
    assert await ann.expect("RECEIPT") == Frame("RECEIPT", {"receipt-id": "1"})
    ann.send("SEND", b"later", destination="/topic/a", receipt="4")
    assert await ann.expect("RECEIPT") == Frame("RECEIPT", {"receipt-id": "2"})
    await ann.closed()
    await bob.ask("SEND", b"x", destination="/topic/a")
    assert await bob.bodies(1) == [b"x"]


async def test_a_second_connect(ann: Peer) -> None:
    """Nobody connects twice."""
    assert "CONNECT" in await ann.refused("CONNECT", accept_version="1.2", host="x")


async def test_frames_in_one_write_with_connect(node: Node) -> None:
    """A client does not have to wait for CONNECTED."""
    async with stranger(node) as peer:
        peer.write(
            b"CONNECT\naccept-version:1.2\nhost:x\n\n\0\n"
            b"SUBSCRIBE\nid:0\ndestination:a\n\n\0\nSEND\ndestination:a\ncontent-length:3\n\na\0b\0\n"
        )
        await peer.expect("CONNECTED")
        assert await peer.bodies(1) == [b"a\0b"]


async def test_one_byte_at_a_time(node: Node, version: Version) -> None:
    """Frames may come in any pieces, from the first on."""
    async with stranger(node, version) as peer:
        stream = (
            f"STOMP\naccept-version:{version}\nhost:x\n\n\0\n"
            "SUBSCRIBE\nid:0\ndestination:/queue/a\n\n\0\nSEND\ndestination:/queue/a\n\nhello\0"
        ).encode()
        for byte in stream:
            peer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert (await peer.expect("CONNECTED")).headers["version"] == version
        assert await peer.bodies(1) == [b"hello"]


async def test_connected_of_1_0(node: Node) -> None:
    """1.0 has no heart-beats, so nothing is said of them; blanks around a login are not part of it."""
    async with stranger(node) as peer:
        peer.write(b"CONNECT\nlogin: <username>\npasscode:<passcode>\n\n\0")
        frame = await peer.expect("CONNECTED")
        assert set(frame.headers) == {"version", "session", "server"}


async def test_too_many_subscriptions(ann: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection has a limited number of subscriptions."""
    monkeypatch.setattr(subscribing, "MAX_SUBSCRIPTIONS", 1)
    await ann.subscribe("/topic/a")
    assert "at most" in await ann.refused("SUBSCRIBE", id="1", destination="/topic/b")


async def test_too_many_frames_that_do_not_end(node: Node, ann: Peer, bob: Peer) -> None:
    """The memory for frames that have begun is limited for the whole node; small ones are let be."""
    node.broker.pressure.budget = 6 << 20
    ann.write(b"SEND\ndestination:a\ncontent-length:8000000\n\n" + b"x" * (2 << 20))
    await until(lambda: node.broker.pressure.held > 2 << 20)
    bob.write(b"SEND\ndestination:a\ncontent-length:8000000\n\n" + b"x" * (2 << 20))
    assert (await ann.error()).headers["message"] == TOO_SLOW
    await bob.close()
    await until_left(node, 0)
    assert node.broker.pressure.held == 0


# Heart-beats


async def test_a_client_that_falls_silent(dsn: str) -> None:
    """A client that promised heart-beats and sends nothing is taken for dead, and its messages go to
    others."""
    async with running_node(dsn, heart_beat_ms=100) as node, connected(node) as ann:
        await ann.ask("SEND", b"x", destination="/queue/a")
        async with connected(node, heart_beat="100,0") as silent:
            await silent.subscribe("/queue/a", ack="client")
            await silent.messages(1)
            assert "heart-beat" in (await silent.error()).headers["message"]
            await ann.subscribe("/queue/a")
            assert await ann.bodies(1) == [b"x"]


async def test_a_client_that_beats(dsn: str) -> None:
    """A client that keeps its promise is let be."""
    async with running_node(dsn, heart_beat_ms=100) as node, connected(node, heart_beat="100,100") as ann:
        for _ in range(6):
            assert await ann.read(1) == b"\n"  # somewhat less than 100 ms later
            ann.write(b"\n")
        await ann.ask("SEND", b"x", destination="/queue/a")


async def test_a_client_that_does_not_read_is_not_dead(dsn: str) -> None:
    """While a client does not read, we do not listen to it: its silence means nothing."""
    async with (
        running_node(dsn, heart_beat_ms=20) as node,
        connected(node, heart_beat="20,0") as busy,
        connected(node) as ann,
    ):
        await busy.subscribe("/topic/a")
        beating = asyncio.ensure_future(_beat(busy))
        wires = list(node.door.wires)
        while all(wire._writable.is_set() for wire in wires):  # noqa: SLF001
            await ann.ask("SEND", b"x" * 1_000_000, destination="/topic/a")
        for _ in range(20):
            await ann.ask("SEND", b"y", destination="/topic/a")
        assert node.door.connections == 2
        while (await busy.messages(1))[0].body != b"y":
            pass
        beating.cancel()


async def _beat(peer: Peer) -> None:
    while True:
        peer.write(b"\n")
        await asyncio.sleep(0.01)


# The end


async def test_the_end_of_the_node(node: Node, ann: Peer, bob: Peer) -> None:
    """A node that shuts down answers what was sent, gives messages back uncounted, and says why it hangs
    up."""
    await ann.subscribe("/queue/jobs", ack="client")
    await bob.ask("SEND", b"job", destination="/queue/jobs")
    await ann.messages(1)
    for n in range(50):
        bob.send("SEND", b"x", destination="/topic/a", receipt=str(n))
    await bob.expect("RECEIPT")
    await node.door.close()
    assert (await ann.error()).headers["message"] == "the node is shutting down"
    receipts = []
    while (frame := await bob.frame()).command == "RECEIPT":
        receipts.append(frame)
    assert frame.command == "ERROR"
    (topic,) = await node.broker.topics.find(["a"])
    assert topic.partitions[0].next_offset == len(receipts) + 1
    while (await node.broker.queues.info(["jobs"]))[0].depth == 0:
        pass
    assert await node.broker.failures() == []


async def test_closing_twice(node: Node) -> None:
    """A door that was never open closes as well."""
    await node.door.close()
    await node.door.close()


async def test_too_many_connections(dsn: str) -> None:
    """The door has a limit of connections; one more is closed."""
    async with running_node(dsn) as node:
        node.door._max_connections = 1  # noqa: SLF001
        async with connected(node), stranger(node) as other:
            await other.closed()


async def test_limits_of_frames(dsn: str) -> None:
    """How large frames may be is a setting of the door."""
    async with running_node(dsn, frames=FrameLimits(max_headers=2)) as node, connected(node) as ann:
        await ann.ask("SEND", b"x", destination="/topic/a")
        ann.send("SEND", b"x", destination="/topic/a", a="1", b="2")
        assert "at most 2" in (await ann.error()).headers["message"]


async def test_a_subscription_whose_client_is_gone(node: Node) -> None:
    """A connection that ends while it subscribes leaves nothing behind."""
    for destination in ("/topic/a", "/queue/a"):
        async with connected(node) as peer:
            peer.send("SUBSCRIBE", id="0", destination=destination)
            peer.send("SUBSCRIBE", id="1", destination=destination)
    await until_left(node, 0)
    assert await node.broker.subscriptions.list() == []
    queue = await node.broker.queues.ensure("a")
    await until_waiting_for(node.broker, queue.queue_id, 0)
    await until(lambda: node.broker.pressure.level == 0)


async def test_a_publisher_that_closes_early(node: Node, ann: Peer) -> None:
    """What has arrived is carried out, though its sender is gone by then."""
    await ann.subscribe("/topic/a")
    async with connected(node) as peer:
        peer.send("SUBSCRIBE", id="0", destination="/topic/b")
        for n in range(10):
            peer.send("SEND", b"%d" % n, destination="/topic/a")
    assert await ann.bodies(10) == [b"%d" % n for n in range(10)]
    await until_left(node, 1)


async def test_internal_errors(node: Node, ann: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the node is told by a number that is in the log, and nothing else."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(node.broker.topics, "publish_soon", fail)
    text = await ann.refused("SEND", b"x", destination="/topic/a")
    assert text.startswith("internal error ")
