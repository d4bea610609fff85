"""Queues over STOMP: competing consumers, acknowledgement, redelivery, dead letters."""

import asyncio
import time

import pytest

from broker.inside import until_waiting_for
from doors.stomp.peer import Node, Peer, connected
from nuncius.doors.stomp.frames.versions import Version
from racing import until


async def depth(node: Node, name: str = "jobs") -> int:
    (info,) = await node.broker.queues.info([name])
    return info.depth


async def leases(node: Node) -> int:
    """How many messages are with consumers."""
    rows = await node.broker._store.query("select count(*) from nuncius.leases")  # noqa: SLF001
    return int(rows[0][0])


async def nothing_left(node: Node, name: str = "jobs") -> None:
    """Returns when a queue is empty and nobody holds a message."""
    async with asyncio.timeout(60):
        while await depth(node, name) or await leases(node):
            pass


async def send(peer: Peer, *bodies: bytes, **headers: str) -> None:
    for body in bodies:
        await peer.ask("SEND", body, **{"destination": "/queue/jobs", **headers})


async def test_auto(node: Node, ann: Peer, bob: Peer) -> None:
    """With ack:auto a message is gone when it was sent to the consumer."""
    await bob.subscribe("/queue/jobs")
    await send(ann, b"1", b"2")
    assert await bob.bodies(2) == [b"1", b"2"]
    await nothing_left(node)


async def test_messages_wait_for_consumers(node: Node, ann: Peer, bob: Peer) -> None:
    """What was sent before anybody subscribed is delivered, by priority and then by age. STOMP's priorities
    0 to 9 are 1 to 10 of the other doors; the default 4 is their 5."""
    await send(ann, b"low", priority="0")
    await send(ann, b"usual", b"usual too")
    await send(ann, b"high", priority="9")
    async with node.client() as client:
        await client.put("jobs", b"native", priority=6)
    await bob.subscribe("/queue/jobs")
    messages = await bob.messages(5)
    assert [(m.body, m.headers["priority"]) for m in messages] == [
        (b"high", "9"),
        (b"native", "5"),
        (b"usual", "4"),
        (b"usual too", "4"),
        (b"low", "0"),
    ]


async def test_competing_consumers(node: Node, ann: Peer) -> None:
    """Each message goes to one consumer, and a consumer that is busy does not hold up the others."""
    async with connected(node) as first, connected(node) as second:
        for consumer in (first, second):
            await consumer.subscribe("/queue/jobs", ack="client", prefetch_count="1")
        await send(ann, b"1", b"2", b"3")
        (one,) = await first.messages(1)
        (two,) = await second.messages(1)
        await second.ask("ACK", id=two.headers["ack"])
        (three,) = await second.messages(1)
        assert sorted([one.body, two.body, three.body]) == [b"1", b"2", b"3"]
        await second.ask("ACK", id=three.headers["ack"])
        await first.ask("ACK", id=one.headers["ack"])
    await nothing_left(node)


@pytest.mark.parametrize("header", ["prefetch-count", "activemq.prefetchSize"])
async def test_prefetch(node: Node, ann: Peer, bob: Peer, header: str) -> None:
    """No more messages than prefetch-count are unacknowledged at a time."""
    await send(ann, *(b"%d" % n for n in range(5)))
    await bob.ask("SUBSCRIBE", id="0", destination="/queue/jobs", ack="client", **{header: "2"})
    first, second = await bob.messages(2)
    assert (await depth(node), await leases(node)) == (3, 2)
    await bob.ask("ACK", id=first.headers["ack"])
    (third,) = await bob.messages(1)
    assert (second.body, third.body) == (b"1", b"2")


@pytest.mark.parametrize("wrong", ["0", "-1", "many", "10001", ""])
async def test_a_wrong_prefetch(ann: Peer, wrong: str) -> None:
    """It is a number from 1 on."""
    assert "prefetch-count" in await ann.refused(
        "SUBSCRIBE", id="0", destination="/queue/a", prefetch_count=wrong
    )


async def test_the_default_prefetch_is_finite(node: Node, ann: Peer, bob: Peer) -> None:
    """A consumer that says nothing gets at most a hundred messages before it acknowledges one."""
    async with node.client() as client:
        await client.create_queue("jobs")
        await client.put_batch("jobs", [b"x"] * 150)
    await bob.subscribe("/queue/jobs", ack="client")
    messages = await bob.messages(100)
    assert await leases(node) == 100
    bob.send("ACK", id=messages[-1].headers["ack"])
    assert len(await bob.messages(50)) == 50
    del ann


@pytest.mark.parametrize("goodbye", ["DISCONNECT", "UNSUBSCRIBE"])
async def test_a_consumer_that_says_goodbye(node: Node, ann: Peer, bob: Peer, goodbye: str) -> None:
    """What it did not acknowledge goes back at once, with its id, and is not a failed attempt."""
    async with connected(node) as consumer:
        await consumer.subscribe("/queue/jobs", ack="client")
        await send(ann, b"1", b"2")
        before = {message.headers["message-id"] for message in await consumer.messages(2)}
        await consumer.ask(goodbye, id="0")
        await bob.subscribe("/queue/jobs", ack="client")
        messages = await bob.messages(2)
        assert sorted(message.body for message in messages) == [b"1", b"2"]
        assert not any("attempt" in message.headers for message in messages)
        assert {message.headers["message-id"] for message in messages} == before


async def test_a_consumer_that_waits_and_leaves(node: Node, ann: Peer, bob: Peer) -> None:
    """A consumer that left while it waited gets nothing any more: the message is for the next one."""
    await bob.subscribe("/queue/jobs", id="1")
    queue = await node.broker.queues.find("jobs")
    await until_waiting_for(node.broker, queue.queue_id)
    await bob.ask("UNSUBSCRIBE", id="1")
    await send(ann, b"1")
    await bob.subscribe("/queue/jobs", id="2")
    (message,) = await bob.messages(1)
    assert message.headers["subscription"] == "2"


@pytest.mark.parametrize("ack", ["auto", "client"])
async def test_expired_messages(node: Node, ann: Peer, bob: Peer, ack: str) -> None:
    """A message that expires before it is delivered is never delivered; `expires` is in milliseconds since
    1970."""
    now = int(time.time() * 1000)
    await send(ann, b"old", expires=str(now - 1))
    await send(ann, b"new", expires=str(now + 3_600_000))
    await send(ann, b"for ever", expires="0")
    await bob.subscribe("/queue/jobs", ack=ack)
    messages = await bob.messages(2)
    assert [message.body for message in messages] == [b"new", b"for ever"]
    assert messages[0].headers["expires"] == str(now + 3_600_000)
    if ack == "client":
        await bob.ask("ACK", id=messages[1].headers["ack"])
    await nothing_left(node)


@pytest.mark.parametrize(("header", "wrong"), [("expires", "soon"), ("priority", "10"), ("priority", "-1")])
async def test_wrong_headers(ann: Peer, header: str, wrong: str) -> None:
    """A header that means something has to mean it."""
    assert header in await ann.refused("SEND", b"x", destination="/queue/a", **{header: wrong})


async def test_the_senders_own_id(node: Node, ann: Peer, bob: Peer) -> None:
    """A message with an id of its sender's own is stored once, however often it is sent, and a client of
    another name may use the same id. The receiver sees it as sender-message-id."""
    await bob.subscribe("/queue/jobs", ack="client")
    long = "x" * 1000
    for own in ("a", "a", long, "b", long):
        await send(ann, own.encode(), message_id=own)
    async with connected(node, login="somebody else") as other:
        await send(other, b"a", message_id="a")
    messages = await bob.messages(4)
    assert [message.body for message in messages] == [b"a", long.encode(), b"b", b"a"]
    assert [m.headers["sender-message-id"] for m in messages] == ["a", long, "b", "a"]
    assert all(message.headers["message-id"].startswith("q-") for message in messages)


async def test_order_is_kept_while_names_are_looked_up(node: Node, ann: Peer, bob: Peer) -> None:
    """Messages of one sender are stored in their order, whichever of them has to be looked up."""
    for n in range(40):
        own = {"message_id": str(n)} if n % 3 == 0 else {}
        ann.send("SEND", b"%d" % n, destination="/queue/jobs", **own)
    await ann.ask("SEND", b"40", destination="/queue/jobs")
    await bob.subscribe("/queue/jobs")
    assert await bob.bodies(41) == [b"%d" % n for n in range(41)]
    del node


async def test_a_queue_that_is_deleted(node: Node, ann: Peer) -> None:
    """A SEND makes its queue, also when it was there a moment ago."""
    await send(ann, b"1")
    queue = await node.broker.queues.find("jobs")
    await node.broker._store.query("select nuncius.delete_queues($1)", [queue.queue_id])  # noqa: SLF001
    node.broker.queues.names.learn("jobs", queue)
    await send(ann, b"2")
    assert await depth(node) == 1


async def test_a_queue_that_is_deleted_under_its_consumer(node: Node, ann: Peer) -> None:
    """The consumers of a queue that is deleted learn it by an ERROR."""
    await ann.subscribe("/queue/jobs")
    queue = await node.broker.queues.find("jobs")
    await node.broker.queues.delete(queue.queue_id)
    assert (await ann.error()).headers["message"]


@pytest.mark.parametrize("old", [Version.V10, Version.V11])
async def test_acks_before_1_2(node: Node, ann: Peer, old: Version) -> None:
    """Before 1.2 a message is acknowledged by its message-id; 1.1 names the subscription as well."""
    async with connected(node, old) as bob:
        await bob.subscribe("/queue/other", id="o", ack="client")
        await bob.subscribe("/queue/jobs", ack="client-individual")
        await send(ann, b"1", b"2")
        first, second = await bob.messages(2)
        assert "ack" not in first.headers
        named = {"subscription": "0"} if old is Version.V11 else {}
        await bob.ask("ACK", message_id=second.headers["message-id"], **named)
        await bob.ask("NACK", message_id=first.headers["message-id"], **named)
        (again,) = await bob.messages(1)
        assert (again.body, again.headers["attempt"]) == (b"1", "2")
        await bob.ask("ACK", message_id=again.headers["message-id"], **named)
        await nothing_left(node)
        assert "acknowledgement" in await bob.refused("ACK", message_id="q-1", **named)


async def test_acks_of_1_1_name_the_subscription(node: Node) -> None:
    """The subscription header is required in 1.1, and has to be one that exists."""
    async with connected(node, Version.V11) as bob:
        assert "subscription" in await bob.refused("ACK", message_id="q-1")
    async with connected(node, Version.V11) as bob:
        assert "acknowledgement" in await bob.refused("ACK", message_id="q-1", subscription="9")


async def test_subscriptions_of_1_0(node: Node, ann: Peer) -> None:
    """1.0 knows a subscription by its destination, and then its messages do not name one; or by an id."""
    async with connected(node, Version.V10) as bob:
        await bob.ask("SUBSCRIBE", destination="/queue/jobs")
        await bob.ask("SUBSCRIBE", destination="/queue/other", id="o")
        await send(ann, b"1")
        await send(ann, b"2", destination="/queue/other")
        messages = {message.body: message.headers for message in await bob.messages(2)}
        assert "subscription" not in messages[b"1"]
        assert messages[b"2"]["subscription"] == "o"
        await bob.ask("UNSUBSCRIBE", destination="/queue/jobs")
        await bob.ask("UNSUBSCRIBE", id="o")


async def test_auto_is_not_acknowledged(ann: Peer) -> None:
    """A message of an ack:auto subscription has nothing to acknowledge."""
    await ann.subscribe("/queue/jobs")
    await send(ann, b"1")
    await ann.messages(1)
    assert "acknowledgement" in await ann.refused("ACK", id="1-1")


async def test_a_durable_consumer_of_a_queue(ann: Peer) -> None:
    """Queues keep their messages anyway: a name for that is an ERROR, that it shall be so is not."""
    for word in ("true", "false"):
        await ann.subscribe("/queue/a", durable=word)
        await ann.ask("UNSUBSCRIBE", id="0", durable=word)
    assert "durable" in await ann.refused("SUBSCRIBE", id="0", destination="/queue/a", durable="me")


async def test_large_messages_come_a_few_at_a_time(node: Node, ann: Peer, bob: Peer) -> None:
    """A consumer of large messages does not have its whole prefetch in memory at once."""
    await bob.subscribe("/queue/jobs", ack="client")
    for n in range(6):
        ann.send("SEND", b"%d" % n * 500_000, destination="/queue/jobs")
    messages = await bob.messages(6)
    assert [message.body[:1] for message in messages] == [b"%d" % n for n in range(6)]
    await bob.ask("ACK", id=messages[-1].headers["ack"])
    await until(lambda: node.broker.pressure.level == 0)
