"""Topics over STOMP: fan-out, durable subscriptions, acknowledgement, redelivery, dead letters."""

import time
from contextlib import AsyncExitStack

import pytest

from doors.stomp.peer import Node, Peer, connected, running_node, until_left
from nuncius.broker.limits import Limits
from nuncius.doors.stomp.frames.versions import Version


async def send(peer: Peer, *bodies: bytes, **headers: str) -> None:
    for body in bodies:
        await peer.ask("SEND", body, **{"destination": "/topic/news", **headers})


async def subscribers(node: Node) -> list[str]:
    return [found.subscriber for found in await node.broker.subscriptions.list("news")]


async def test_fan_out(node: Node, ann: Peer) -> None:
    """Every subscriber gets every message, whether it says /topic/NAME or NAME, in any version."""
    async with (
        connected(node, Version.V10) as old,
        connected(node, Version.V11) as newer,
        connected(node) as new,
    ):
        await old.subscribe("news")
        await newer.subscribe("/topic/news")
        await new.subscribe("/topic/news", id="1")
        await new.subscribe("news", id="2", ack="client")
        await send(ann, b"a", b"b")
        for peer, destination in ((old, "news"), (newer, "/topic/news")):
            messages = await peer.messages(2)
            assert [message.body for message in messages] == [b"a", b"b"]
            assert {message.headers["destination"] for message in messages} == {destination}
        messages = await new.messages(4)
        for number in ("1", "2"):
            mine = [message for message in messages if message.headers["subscription"] == number]
            assert [message.body for message in mine] == [b"a", b"b"]
            assert all(("ack" in message.headers) == (number == "2") for message in mine)


async def test_start(ann: Peer, bob: Peer) -> None:
    """A new subscriber begins with what comes next, or with the first message there is."""
    await send(ann, b"old")
    await bob.subscribe("/topic/news", id="latest")
    await bob.subscribe("/topic/news", id="earliest", start="earliest")
    await send(ann, b"new")
    messages = await bob.messages(3)
    by = {
        name: [m.body for m in messages if m.headers["subscription"] == name]
        for name in ("latest", "earliest")
    }
    assert by == {"latest": [b"new"], "earliest": [b"old", b"new"]}


async def test_a_wrong_start(ann: Peer) -> None:
    """There is no other beginning."""
    assert "start" in await ann.refused("SUBSCRIBE", id="0", destination="news", start="yesterday")


@pytest.mark.parametrize("ack", ["auto", "client"])
async def test_durable(node: Node, ann: Peer, ack: str) -> None:
    """A durable subscription keeps its place while its subscriber is away, by one header."""
    async with connected(node) as bob:
        await bob.subscribe("/topic/news", durable="bob", ack=ack)
        await send(ann, b"1")
        (message,) = await bob.messages(1)
        if ack == "client":
            await bob.ask("ACK", id=message.headers["ack"])
        await bob.ask("DISCONNECT")
    await send(ann, b"2", b"3")
    async with connected(node) as bob:
        await bob.subscribe("/topic/news", durable="bob", ack=ack)
        messages = await bob.messages(2)
        assert [message.body for message in messages] == [b"2", b"3"]
        assert not any("redelivered" in message.headers for message in messages)
    assert await subscribers(node) == ["bob"]


async def test_the_end_of_a_durable_subscription(node: Node, bob: Peer) -> None:
    """UNSUBSCRIBE leaves a durable subscription its place; one that names it, too, ends it for good."""
    await bob.subscribe("/topic/news", durable="bob")
    await bob.ask("UNSUBSCRIBE", id="0")
    assert await subscribers(node) == ["bob"]
    await bob.subscribe("/topic/news", durable="bob")
    await bob.ask("UNSUBSCRIBE", id="0", durable="bob")
    assert await subscribers(node) == []
    await bob.subscribe("/topic/news")
    assert "not 'ann'" in await bob.refused("UNSUBSCRIBE", id="0", durable="ann")


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_durable_subscriber_that_comes_twice(
    dsn: str, node: Node, ann: Peer, elsewhere: bool
) -> None:
    """A durable subscription is one connection's at a time. Who comes last has it and gets what was not
    acknowledged; the other one gets an ERROR. It does not matter at which nodes they are."""
    async with AsyncExitStack() as stack:
        second = await stack.enter_async_context(running_node(dsn)) if elsewhere else node
        old = await stack.enter_async_context(connected(node))
        new = await stack.enter_async_context(connected(second))
        await old.subscribe("/topic/news", durable="bob", ack="client-individual")
        await send(ann, b"1", b"2")
        first, _ = await old.messages(2)
        await old.ask("ACK", id=first.headers["ack"])
        await new.subscribe("/topic/news", durable="bob", ack="client-individual")
        assert "'bob' of the topic 'news' goes on elsewhere" in (await old.error()).headers["message"]
        await send(ann, b"3")
        messages = await new.messages(2)
        assert [(each.body, each.headers.get("redelivered")) for each in messages] == [
            (b"2", "true"), (b"3", None),
        ]  # fmt: skip
        assert "attempt" not in messages[0].headers
        for each in messages:
            await new.ask("ACK", id=each.headers["ack"])


async def test_a_durable_subscription_twice_in_a_connection(ann: Peer) -> None:
    """Nobody takes a durable subscription away from itself."""
    await ann.subscribe("/topic/news", id="1", durable="ann")
    await ann.subscribe("/topic/other", id="2", durable="ann")
    text = await ann.refused("SUBSCRIBE", id="3", destination="news", durable="ann")
    assert text == "this connection has the durable subscription 'ann' already"


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"durable": "true"}, "0"),
        ({"durable": "false"}, None),
        ({"activemq.subscriptionName": "mine"}, "me/mine"),
        ({"durable-subscription-name": "mine"}, "me/mine"),
    ],
)
async def test_as_other_servers_have_it(node: Node, headers: dict[str, str], name: str | None) -> None:
    """A client that says in another server's words that its subscription is durable gets what it wants, and
    ends it with the same words."""
    async with connected(node, client_id="me") as bob:
        await bob.subscribe("/topic/news", **headers)
        (found,) = await subscribers(node)
        assert found.startswith("stomp/") if name is None else found == name
        await bob.ask("UNSUBSCRIBE", id="0")
        if name is not None:
            await bob.subscribe("/topic/news", **headers)
            await bob.ask("UNSUBSCRIBE", id="0", **headers)
    assert await subscribers(node) == []


async def test_a_nameless_durable_subscription(node: Node, ann: Peer) -> None:
    """A durable subscription has a name by which it is found again."""
    assert "1 to 255" in await ann.refused("SUBSCRIBE", id="0", destination="/topic/news", durable="")
    assert await subscribers(node) == []


PATTERNS = ("/topic/*", "PRICE.>", "/topic/a.*.b", "/topic/stocks/#", "/queue/jobs.**")


@pytest.mark.parametrize("destination", PATTERNS)
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
async def test_patterns(ann: Peer, command: str, destination: str) -> None:
    """A destination that other servers read as a pattern is an error that says so, not a name."""
    headers = {"id": "0"} if command == "SUBSCRIBE" else {}
    assert "patterns such as" in await ann.refused(command, destination=destination, **headers)


async def test_names_with_the_characters_of_patterns(ann: Peer) -> None:
    """Such a character within a word belongs to the name."""
    for n, destination in enumerate(("/topic/C#", "a>b.c", "/queue/2*3", "/topic/##")):
        await ann.subscribe(destination, id=str(n))
        await ann.ask("SEND", b"%d" % n, destination=destination)
        assert await ann.bodies(1) == [b"%d" % n]


async def test_selectors(ann: Peer) -> None:
    """Who wants a part only is told that there is only everything."""
    text = await ann.refused("SUBSCRIBE", id="0", destination="/topic/news", selector="a = 1")
    assert "no selectors" in text


@pytest.mark.parametrize("goodbye", [True, False])
async def test_other_subscriptions_end_with_their_connection(node: Node, goodbye: bool) -> None:
    """A subscription that is not durable is gone with its connection, however that ended."""
    async with connected(node) as peer:
        await peer.subscribe("/topic/news")
        assert len(await subscribers(node)) == 1
        if goodbye:
            await peer.ask("DISCONNECT")
    while await subscribers(node):
        pass


async def test_redelivery_to_a_durable_subscriber(node: Node, ann: Peer) -> None:
    """What a durable subscriber did not acknowledge before its connection was lost comes again, marked;
    what it acknowledged does not."""
    async with connected(node) as bob:
        await bob.subscribe("/topic/news", durable="bob", ack="client-individual")
        await send(ann, b"1", b"2", b"3")
        first, second, third = await bob.messages(3)
        await bob.ask("ACK", id=first.headers["ack"])
        await bob.ask("ACK", id=third.headers["ack"])
    await until_left(node, 1)
    await send(ann, b"4")
    async with connected(node) as bob:
        await bob.subscribe("/topic/news", durable="bob", ack="client-individual")
        messages = {message.body: message.headers for message in await bob.messages(2)}
        assert set(messages) == {b"2", b"4"}
        assert messages[b"2"]["message-id"] == second.headers["message-id"]
        assert messages[b"2"]["redelivered"] == "true"
        assert "redelivered" not in messages[b"4"]


async def test_nack(ann: Peer, bob: Peer) -> None:
    """What a subscriber refuses comes again after a while, and does not hold up what comes after it."""
    await bob.subscribe("/topic/news", ack="client-individual")
    await send(ann, b"1", b"2")
    first, second = await bob.messages(2)
    await bob.ask("NACK", id=first.headers["ack"])
    await bob.ask("ACK", id=second.headers["ack"])
    (again,) = await bob.messages(1)
    assert again.headers["message-id"] == first.headers["message-id"]
    assert (again.body, again.headers["redelivered"], again.headers["attempt"]) == (b"1", "true", "2")
    await bob.ask("ACK", id=again.headers["ack"])


async def test_nack_until_dead(dsn: str) -> None:
    """After ten attempts a message is a dead letter, in the topic dead/NAME, with its history in headers."""
    async with (
        running_node(dsn, limits=Limits(retry_delay=0.0)) as node,
        connected(node) as ann,
        connected(node) as bob,
    ):
        await bob.subscribe("/topic/dead/news", id="dead")
        await bob.subscribe("/topic/news", durable="bob", ack="client")
        await send(ann, b"poison", foo="bar", key="k")
        for attempt in range(1, 11):
            (message,) = await bob.messages(1)
            assert message.headers.get("attempt", "1") == str(attempt)
            bob.send("NACK", id=message.headers["ack"], reason=f"failed {attempt}")
        (dead,) = await bob.messages(1)
        assert (dead.body, dead.headers["subscription"]) == (b"poison", "dead")
        assert (dead.headers["foo"], dead.headers["key"]) == ("bar", "k")
        assert dead.headers["dead-destination"] == "/topic/news"
        assert dead.headers["dead-subscriber"] == "bob"
        assert dead.headers["dead-attempts"] == "10"
        assert dead.headers["dead-reason"] == "failed 10"


async def test_acks_of_1_0(node: Node, ann: Peer) -> None:
    """1.0 acknowledges a message of a topic by its message-id alone."""
    async with connected(node, Version.V10) as bob:
        for name in ("other", "news"):
            await bob.ask("SUBSCRIBE", destination=name, ack="client", durable="bob")
        await send(ann, b"1", b"2")
        _, second = await bob.messages(2)
        await bob.ask("ACK", message_id=second.headers["message-id"])
        await bob.ask("UNSUBSCRIBE", destination="news")
        await bob.ask("SUBSCRIBE", destination="news", ack="client", durable="bob")
        await send(ann, b"3")
        assert await bob.bodies(1) == [b"3"]


async def test_prefetch(ann: Peer, bob: Peer) -> None:
    """No more messages than prefetch-count are unacknowledged at a time."""
    await bob.subscribe("/topic/news", ack="client", prefetch_count="2")
    await bob.subscribe("/topic/news", id="all")
    await send(ann, b"1", b"2", b"3")
    messages = await bob.messages(5)
    held = [message for message in messages if message.headers["subscription"] == "0"]
    assert [message.body for message in held] == [b"1", b"2"]
    await bob.ask("ACK", id=held[1].headers["ack"])
    assert await bob.bodies(1) == [b"3"]


@pytest.mark.parametrize("ack", ["auto", "client"])
async def test_expired_messages(ann: Peer, bob: Peer, ack: str) -> None:
    """A message that has expired is not delivered, and is no gap for who acknowledges."""
    now = int(time.time() * 1000)
    await send(ann, b"1")
    await send(ann, b"old", expires=str(now - 1))
    await send(ann, b"2", expires=str(now + 3_600_000))
    await bob.subscribe("/topic/news", ack=ack, start="earliest", durable="bob")
    messages = await bob.messages(2)
    assert [message.body for message in messages] == [b"1", b"2"]
    if ack == "client":
        await bob.ask("ACK", id=messages[1].headers["ack"])
    await bob.ask("UNSUBSCRIBE", id="0")
    await bob.subscribe("/topic/news", ack=ack, durable="bob")
    await send(ann, b"3")
    assert await bob.bodies(1) == [b"3"]


async def test_keys(node: Node, ann: Peer, bob: Peer) -> None:
    """The key header chooses the partition: messages with the same key stay in order."""
    await node.broker.topics.create("news", 4)
    await bob.subscribe("/topic/news", ack="client")
    for n in range(20):
        await send(ann, b"%d" % n, key=f"k:{n % 5}")
    messages = await bob.messages(20)
    for k in range(5):
        mine = [int(m.body) for m in messages if m.headers["key"] == f"k:{k}"]
        assert mine == list(range(k, 20, 5))
    assert len({message.headers["message-id"] for message in messages}) == 20
    await bob.ask("ACK", id=messages[-1].headers["ack"])


async def test_headers_end_to_end(ann: Peer, bob: Peer) -> None:
    """What a sender says about its message arrives; what only the server can say is not taken from a
    sender."""
    kept = {
        "content_type": "application/json",
        "reply_to": "/queue/answers",
        "correlation_id": "77",
        "priority": "9",
        "persistent": "true",
        "timestamp": "12",
        "x-y": "ü: \\ \n",
    }
    forged = {"subscription": "9", "ack": "9", "redelivered": "true", "attempt": "9"}
    await bob.subscribe("/topic/news")
    await send(ann, b"{}", **kept, **forged, message_id="mine")
    (message,) = await bob.messages(1)
    assert message.headers == {
        "subscription": "0",
        "destination": "/topic/news",
        "message-id": "t-1-1-0",
        "sender-message-id": "mine",
        "content-length": "2",
        **{name.replace("_", "-"): value for name, value in kept.items()},
    }


async def test_the_senders_own_id(ann: Peer, bob: Peer) -> None:
    """A message with an id of its sender's own is stored once."""
    await bob.subscribe("/topic/news")
    for own in ("a", "a", "b", "a"):
        await send(ann, own.encode(), message_id=own)
    await send(ann, b"end")
    assert await bob.bodies(3) == [b"a", b"b", b"end"]


async def test_a_topic_that_is_deleted(node: Node, bob: Peer) -> None:
    """The subscribers of a topic that is deleted learn it by an ERROR."""
    await bob.subscribe("/topic/news")
    await node.broker.topics.delete("news")
    error = await bob.error()
    assert "news" in error.headers["message"]
    assert "receipt-id" not in error.headers


async def test_old_clients_get_what_they_can_be_told(node: Node, ann: Peer) -> None:
    """Headers that 1.0 cannot carry are changed or left out there, and the frame is still a frame."""
    async with connected(node, Version.V10) as old:
        await old.subscribe("/topic/news")
        await send(ann, b"x", a="1\n2", **{"b:c": "3"})
        (message,) = await old.messages(1)
        assert message.headers["a"] == "1 2"
        assert "b:c" not in message.headers
        assert message.body == b"x"


async def test_names_of_jobs(bob: Peer) -> None:
    """A durable subscription under the name of a job is an ERROR that says so."""
    told = await bob.refused("SUBSCRIBE", id="0", destination="/topic/news", durable="nuncius:archive")
    assert "reserved for jobs" in told
