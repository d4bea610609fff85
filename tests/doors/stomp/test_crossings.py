"""Crossings: what goes in through one door comes out through another."""

import pytest

from doors.stomp.peer import Node, Peer, connected, running_node

BINARY = bytes(range(256)) * 4


async def test_a_topic_from_stomp_to_native(node: Node, ann: Peer) -> None:
    """A SEND to a topic is an entry with key and headers for the native client."""
    async with node.client() as client:
        subscription = await client.subscribe("news", "native")
        headers = {"key": "k", "content_type": "x/y", "a": "b", "message_id": "7"}
        length = str(len(BINARY))
        await ann.ask("SEND", BINARY, destination="/topic/news", content_length=length, **headers)
        (entry,) = await subscription.next_batch(20)
        assert (entry.body, entry.key) == (BINARY, "k")
        assert entry.headers == {"content-type": "x/y", "a": "b", "message-id": "7"}


async def test_a_topic_from_native_to_stomp(node: Node, ann: Peer) -> None:
    """An entry of the native client is a MESSAGE, with its key and headers, or without."""
    await ann.subscribe("/topic/news")
    async with node.client() as client:
        await client.publish("news", BINARY)
        await client.publish("news", b"", key="k:1", headers={"a": "b\n", "destination": "forged"})
    plain, rich = await ann.messages(2)
    assert plain.body == BINARY
    assert set(plain.headers) == {"subscription", "destination", "message-id", "timestamp", "content-length"}
    assert rich.body == b""
    assert (rich.headers["key"], rich.headers["a"], rich.headers["destination"]) == (
        "k:1",
        "b\n",
        "/topic/news",
    )


async def test_a_queue_from_stomp_to_native(node: Node, ann: Peer) -> None:
    """A SEND to a queue is a message with priority and headers for the native client."""
    await ann.ask("SEND", b"low\0", destination="/queue/jobs", content_length="4")
    await ann.ask("SEND", b"high", destination="/queue/jobs", priority="9", reply_to="/queue/answers")
    async with node.client() as client:
        high, low = await client.take_batch("jobs", 2)
        assert (high.body, high.priority, high.headers) == (b"high", 10, {"reply-to": "/queue/answers"})
        assert (low.body, low.priority, low.headers) == (b"low\0", 5, {})


@pytest.mark.parametrize("ack", ["auto", "client"])
async def test_a_queue_from_native_to_stomp(node: Node, ann: Peer, ack: str) -> None:
    """A message of the native client is a MESSAGE; consumers of both doors compete for it."""
    async with node.client() as client:
        await client.create_queue("jobs")
        await ann.subscribe("/queue/jobs", ack=ack, prefetch_count="1")
        await client.put("jobs", BINARY, priority=1, headers={"a": "b"})
        (message,) = await ann.messages(1)
        assert message.body == BINARY
        assert (message.headers["priority"], message.headers["a"]) == ("0", "b")
        if ack == "client":
            await client.put("jobs", b"next")
            taken = await client.take("jobs", wait=20)
            assert taken is not None
            assert taken.body == b"next"


async def test_messages_for_somebody(node: Node, ann: Peer) -> None:
    """A message that is addressed to one client of another door is not for consumers here."""
    async with node.client() as client:
        await client.create_queue("jobs")
        bob = await node.broker.clients.find_or_register("bob", 1)
        await client.put("jobs", b"for bob", receiver=bob.client_id)
        await ann.subscribe("/queue/jobs")
        await client.put("jobs", b"for anyone")
        assert await ann.bodies(1) == [b"for anyone"]


async def test_several_nodes(dsn: str, node: Node, ann: Peer) -> None:
    """Whoever is connected to another node gets the same messages, and competes for the same queues."""
    async with running_node(dsn) as other, connected(other) as bob:
        await bob.subscribe("/topic/news", id="t")
        await bob.subscribe("/queue/jobs", id="q", ack="client")
        await ann.ask("SEND", b"news", destination="/topic/news")
        await ann.ask("SEND", b"job", destination="/queue/jobs")
        messages = {message.headers["subscription"]: message for message in await bob.messages(2)}
        assert (messages["t"].body, messages["q"].body) == (b"news", b"job")
    await ann.subscribe("/queue/jobs")
    assert await ann.bodies(1) == [b"job"]
    del node
