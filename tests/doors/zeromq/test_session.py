"""What the door promises beside its tables: order, waiting, bounds, and an end that is one."""

import asyncio
import logging
import tracemalloc

import pytest
import zmq

from doors.zeromq.peer import READY_OF_DEALER, Node, Peer, connected, raw, running_node
from nuncius.broker import Broker
from nuncius.broker.model import Retention
from nuncius.doors import replies
from nuncius.doors.zeromq import session
from nuncius.doors.zeromq.door import ZeromqDoor
from nuncius.doors.zeromq.zmtp_codec import GREETING, READY, encode
from nuncius.store.driver import Connection
from nuncius.store.pressure import TOO_SLOW
from racing import terminate, until, until_somebody_waits

# Order


async def test_requests_without_waiting(node: Node) -> None:
    """A client that sends many requests without waiting gets the answers in their order; each sees what those
    before it did."""
    async with connected(node, zmq.DEALER) as peer:
        requests = ["s ann news", "p bob news 1 a", "p bob news 2 b", "p bob news 2 b", "nonsense"]
        requests += ["g ann news 0", "g ann news 1", "g ann news 2", "p bob news 3 c", "g ann news 2"]
        requests += ["u ann news", "g ann news 2", "s ann news"]
        for request in requests:
            await peer.send(request.encode())
        expected = [
            "a -1",
            "a 1",
            "a 1",
            "e 2",
            "i",
            "a 1 a",
            "a 1 b",
            "e 1",
            "a 1",
            "a 2 c",
            "a",
            "e ns",
            "a 2",
        ]
        assert [(await peer.receive())[0].decode() for _ in requests] == expected


async def test_many_behind_one_that_waits(node: Node, ann: Peer) -> None:
    """Thousands of requests behind one that waits are answered when it is, in order."""
    await ann.ask("s ann news")
    async with raw(node) as connection:
        many = [[b"nonsense"]] * 3000
        connection.send([b"g ann news 0 wait=30"], *many)
        await ann.ask("p bob news 1 text")
        expected = encode([b"a 0 text"]) + encode([b"i"]) * len(many)
        assert await connection.read(len(expected)) == expected


async def test_clients_behind_a_proxy(node: Node, ann: Peer) -> None:
    """Clients that share a connection, each with its own envelope, do not wait for each other."""
    await ann.ask("s ann news")
    async with connected(node, zmq.DEALER) as proxy:
        await proxy.send(b"one", b"", b"g ann news 0 wait=30")
        await proxy.send(b"two", b"", b"s eve news")
        assert await proxy.receive() == [b"two", b"", b"a -1"]
        await ann.ask("p bob news 1 text")
        assert await proxy.receive() == [b"one", b"", b"a 0 text"]


async def test_correlated_requests(node: Node) -> None:
    """A REQ socket with correlation ids finds its answers."""
    async with connected(node) as peer:
        peer.socket.setsockopt(zmq.REQ_CORRELATE, 1)
        peer.socket.setsockopt(zmq.REQ_RELAXED, 1)
        assert await peer.ask("s ann news") == "a -1"
        assert await peer.ask("u ann news") == "a"


async def keep(node: Node, topic: str) -> None:
    """Keep a topic's messages when they are confirmed: a test may ask for them again at any time."""
    await node.broker.topics.set_retention(topic, Retention("forever"))


async def test_many_clients(node: Node) -> None:
    """Many clients at once are all served, each by its own count; one that waits holds up nobody."""
    peers = [Peer(node) for _ in range(40)]
    try:
        assert await peers[0].ask("s reader news") == "a -1"
        await keep(node, "news")
        await peers[0].send(b"g reader news 380 wait=30")

        async def publish(number: int) -> None:
            for count in range(1, 11):
                assert await peers[number].ask(f"p {number} news {count} {number}-{count}") == "a 1"

        await asyncio.gather(*(publish(number) for number in range(1, 39)))
        await peers[39].ask("s late news")
        assert await peers[39].ask("p 39 news 1 last") == "a 2"
        assert await peers[0].receive() == [b"a 380 last"]
        texts = [await peers[0].ask(f"g reader news {n}") for n in range(380)]
        seen = [text.split(" ", 2)[2] for text in texts]
        for number in range(1, 39):
            mine = [text for text in seen if text.startswith(f"{number}-")]
            assert mine == [f"{number}-{count}" for count in range(1, 11)]
    finally:
        for peer in peers:
            peer.close()


# Waiting


async def test_a_get_that_waits(ann: Peer, bob: Peer) -> None:
    """A get may wait: it is answered when the message comes, or when the time is over."""
    await ann.ask("s ann news")
    await ann.send(b"g ann news 0 wait=30")
    await bob.ask("p bob news 1 text")
    assert await ann.receive() == [b"a 0 text"]
    assert await ann.ask("g ann news 1 wait=0.01") == "e 0"
    assert await ann.ask_fields("g", "ann", "news", "0", "wait=30") == [b"a", b"0", b"text"]


async def test_waiting_for_what_is_far_away(ann: Peer, bob: Peer) -> None:
    """A message that is not the one it waits for does not answer a get."""
    await ann.ask("s ann news")
    await ann.send(b"g ann news 2 wait=30")
    for count in (1, 2, 3):
        await bob.ask(f"p bob news {count} {count}")
    assert await ann.receive() == [b"a 2 3"]


async def test_unsubscribed_while_waiting(ann: Peer, bob: Peer) -> None:
    """Who is unsubscribed while it waits is told so."""
    await ann.ask("s ann news")
    await ann.send(b"g ann news 0 wait=30")
    await bob.ask("u ann news")
    assert await ann.receive() == [b"e ns"]


async def test_a_topic_that_is_made_again_while_waiting(node: Node, ann: Peer, bob: Peer) -> None:
    """A get that waits while its topic is deleted and made again waits for the new one."""
    await ann.ask("s ann news")
    await ann.send(b"g ann news 0 wait=30")
    await node.broker.pubsub.subscribe("other", "x")
    async with asyncio.timeout(60):
        rows = await node.broker._store.execute(  # noqa: SLF001  (both in one transaction)
            "select nuncius.delete_topic('news'), (nuncius.subscribe_in_sequence('news', 'ann')).last_id"
        )
    assert rows[0][1] == -1
    assert await bob.ask("p bob news 1 text") == "a 1"
    assert await ann.receive() == [b"a 0 text"]


async def test_two_nodes(ann: Peer, second: Broker) -> None:
    """A put through one node wakes a get that waits at another."""
    door = ZeromqDoor(second)
    other = Node(second, door, await door.open("127.0.0.1", 0))
    try:
        async with connected(other) as bob:
            await ann.ask("s ann news")
            await ann.send(b"g ann news 0 wait=30")
            assert await bob.ask("p bob news 1 text") == "a 1"
            assert await ann.receive() == [b"a 0 text"]
    finally:
        await door.close()


async def test_a_client_that_goes_away_while_it_waits(node: Node, ann: Peer) -> None:
    """Nothing is kept for a client that is gone."""
    await ann.ask("s ann news")
    async with raw(node) as connection:
        connection.send([b"g ann news 0 wait=3000"], [b"s eve news"], [b"g ann news 0"])
        await until(lambda: node.broker.pressure.level > 2 * session.REQUEST_COST)
    await until(lambda: node.door.connections == 1)
    await node.at_rest()
    assert await ann.ask("s eve news") == "a -1"  # it stood behind the get, and was not carried out


# Trouble


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(64),
        GREETING + b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB",
        GREETING + READY_OF_DEALER + b"\xff" * 20,
        GREETING + encode([b"too early"]),
    ],
)
async def test_what_is_not_zeromq(node: Node, ann: Peer, data: bytes) -> None:
    """A connection that speaks something else is closed; the others do not notice."""
    async with raw(node, greeted=False) as connection:
        connection.writer.write(data)
        assert (await connection.until_closed()).startswith(GREETING[:11])
    assert await ann.ask("s ann news") == "a -1"


async def test_everything_in_one_packet(node: Node) -> None:
    """READY comes before the first answer, also when the client says everything at once."""
    async with raw(node, greeted=False) as connection:
        connection.writer.write(GREETING + READY_OF_DEALER + encode([b"nonsense"]))
        expected = GREETING + READY + encode([b"i"])
        assert await connection.read(len(expected)) == expected


async def test_an_old_client(node: Node) -> None:
    """A client that speaks ZMTP 2.0 is served."""
    async with raw(node, greeted=False) as connection:
        connection.writer.write(GREETING[:10])
        assert await connection.read(11) == GREETING[:11]
        connection.writer.write(b"\x01\x03")  # 2.0, REQ
        assert await connection.read(3) == b"\x06\0\0"
        connection.writer.write(encode([b"an identity"]) + encode([b"", b"s ann news"]))
        assert await connection.read(8) == encode([b"", b"a -1"])


async def test_heartbeats(node: Node) -> None:
    """A client that checks that we are there finds that we are."""
    async with raw(node) as connection:
        connection.writer.write(b"\x04\x0a\x04PING\x00\x0actx")
        assert await connection.read(10) == b"\x04\x08\x04PONGctx"


@pytest.mark.parametrize("kind", [zmq.REQ, zmq.DEALER])
async def test_too_large(dsn: str, kind: int) -> None:
    """A message that is too large is `i`, and the connection lives on; the largest allowed is stored."""
    async with running_node(dsn, max_body=1000) as node, connected(node, kind) as peer:
        assert await peer.ask("p bob news 1 " + "x" * 1001) == "i"
        assert await peer.ask("p bob news 1 " + "x" * 100_000) == "i"
        assert await peer.ask_fields("p", "bob", "news", "1", b"x" * 100_000, *["y"] * 100) == [b"i"]
        assert await peer.ask_fields(*["p"] * 100) == [b"i"]
        assert await peer.ask("p bob news 1 " + "x" * 1000) == "a 0"


async def test_too_large_with_an_envelope(dsn: str) -> None:
    """A message that is too large is answered also if more than an empty frame stands before it."""
    async with running_node(dsn, max_body=1000) as node, connected(node) as peer:
        peer.socket.setsockopt(zmq.REQ_CORRELATE, 1)
        peer.socket.setsockopt(zmq.REQ_RELAXED, 1)
        assert await peer.ask("p bob news 1 " + "x" * 100_000) == "i"
        async with connected(node, zmq.DEALER) as proxy:
            await proxy.send(b"one", b"two", b"", b"p bob news 1 " + b"x" * 100_000)
            assert await proxy.receive() == [b"one", b"two", b"", b"i"]


async def test_large_messages(ann: Peer) -> None:
    """Large messages pass, both ways, in both forms."""
    body = b"x" * (8 << 20)
    await ann.ask("s ann news")
    assert await ann.ask_fields("p", "bob", "news", "1", body) == [b"a", b"1"]
    assert (await ann.ask("g ann news 0")) == "a 0 " + body.decode()


async def test_a_client_that_does_not_read(node: Node, ann: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a client that asks for much and reads nothing little is kept; when it reads, it gets everything."""
    held: list[int] = []
    original = replies.UnreadAnswers.sent

    def sent(self: replies.UnreadAnswers, size: int) -> None:
        held.append(size)
        original(self, size)

    monkeypatch.setattr(replies.UnreadAnswers, "sent", sent)
    await ann.ask("s ann news")
    await keep(node, "news")
    body = b"x" * (1 << 20)
    for count in range(1, 5):
        assert await ann.ask_fields("p", "bob", "news", f"{count}", body) == [b"a", b"1"]
    held.clear()
    async with raw(node) as connection:
        asked = 60
        connection.send(*([b"g", b"ann", b"news", b"%d" % (n % 4)] for n in range(asked)))
        one = len(encode([b"a", b"3", body]))
        await connection.read(one)
        for _ in range(20):
            await ann.ask("g ann news 99")
        assert sum(held) < asked * one / 3
        for _ in range(asked - 1):
            assert await connection.read(one) == encode([b"a", b"3", body])
    await until(lambda: node.door.connections == 1)
    await node.at_rest()


async def test_large_answers_beside_gets_that_wait(node: Node, ann: Peer) -> None:
    """Large answers come though others on the same connection wait for theirs."""
    await ann.ask("s ann news")
    await ann.ask("s ann empty")
    body = b"x" * (3 << 20)
    await ann.ask_fields("p", "bob", "news", "1", body)
    async with connected(node, zmq.DEALER) as proxy:
        for n in range(20):
            await proxy.send(b"waits %d" % n, b"", b"g ann empty 0 wait=60")
        for n in range(4):
            await proxy.send(b"large %d" % n, b"", b"g", b"ann", b"news", b"0")
        got = [await proxy.receive() for _ in range(4)]
        assert sorted(name for name, *_ in got) == [b"large %d" % n for n in range(4)]
        assert {frames[-1] for frames in got} == {body}


async def test_large_answers_out_of_turn(node: Node, ann: Peer) -> None:
    """Of several clients that ask for much at once, those whose turn comes later have little kept for them
    until then; each gets everything, in order."""
    await ann.ask("s ann news")
    await keep(node, "news")
    body = b"x" * (1 << 18)
    for count in range(1, 5):
        await ann.ask_fields("p", "bob", "news", f"{count}", body + b"%d" % count)
    asked = 150
    async with raw(node) as first, raw(node) as second, raw(node) as third:
        tracemalloc.start()
        for connection in (first, second, third):
            connection.send(*([b"g", b"ann", b"news", b"%d" % (n % 4)] for n in range(asked)))
        for connection in (first, second, third):
            for n in range(asked):
                answer = encode([b"a", b"3", body + b"%d" % (n % 4 + 1)])
                assert await connection.read(len(answer)) == answer
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < asked * len(body)


async def test_large_answers_behind_one_that_waits(node: Node, ann: Peer) -> None:
    """Large answers behind a get that waits are neither kept nor looked for until it is answered."""
    await ann.ask("s ann news")
    await ann.ask("s ann empty")
    await ann.ask_fields("p", "bob", "news", "1", b"x" * (1 << 20))
    async with connected(node, zmq.DEALER) as client:
        await client.send(b"g ann empty 0 wait=60")
        for _ in range(6):
            await client.send(b"g ann news 0")
        for _ in range(50):
            await ann.ask("g ann empty 99")
        assert node.broker.pubsub._getting.rows < 70  # noqa: SLF001
        assert await ann.ask("p bob empty 1 at last") == "a 1"
        assert await client.receive() == [b"a 0 at last"]
        for _ in range(6):
            assert await client.receive() == [b"a 0 " + b"x" * (1 << 20)]
    await node.at_rest()


@pytest.mark.parametrize("envelopes", [1, 5])
async def test_more_gets_than_are_carried_out_at_once(
    node: Node, ann: Peer, monkeypatch: pytest.MonkeyPatch, envelopes: int
) -> None:
    """Gets beyond what a connection may have under way begin when others have ended, and all are answered."""
    monkeypatch.setattr(session, "MAX_GETS", 2)
    await ann.ask("s ann news")
    async with connected(node, zmq.DEALER) as proxy:
        for n in range(5):
            await proxy.send(b"%d" % (n % envelopes), b"", b"g", b"ann", b"news", b"%d" % n, b"wait=60")
        await proxy.send(b"other", b"", b"g ann news 0 wait=3601")
        for n in range(5):
            assert await ann.ask(f"p bob news {n + 1} {n}") == "a 1"
        got = [await proxy.receive() for _ in range(6)]
    assert [b"other", b"", b"i"] in got
    assert sorted((frames[0], frames[-1]) for frames in got if frames[0] != b"other") == [
        (b"%d" % (n % envelopes), b"%d" % n) for n in range(5)
    ]


async def test_a_client_that_leaves_much_unread(node: Node, ann: Peer) -> None:
    """A client that goes away with much unanswered leaves nothing behind."""
    await ann.ask("s ann news")
    await ann.ask_fields("p", "bob", "news", "1", b"x" * (3 << 20))
    async with raw(node) as connection:
        connection.send(*[[b"g ann news 0"]] * 5000)
        await connection.read(100_000)
    await until(lambda: node.door.connections == 1)
    await node.at_rest()


async def test_messages_that_do_not_end(node: Node, ann: Peer) -> None:
    """When too much has begun and does not end, the slowest connection is cut off; small ones are let be."""
    node.broker.pressure.budget = 6 << 20
    async with raw(node) as small, raw(node) as first, raw(node) as second:
        small.writer.write(encode([b"p", b"bob", b"news", b"1", b"text"])[:-1])
        for large in (first, second):
            large.writer.write(b"\x02" + (4 << 20).to_bytes(8, "big") + bytes(2 << 20))
            await until(lambda: node.broker.pressure.held > 2 << 20)
        assert TOO_SLOW.encode() in await first.until_closed()
        small.writer.write(b"t")
        assert await small.read(6) == encode([b"a", b"0"])
    await until(lambda: node.door.connections <= 1)
    assert node.broker.pressure.held == 0
    assert await ann.ask("nonsense") == "i"


async def test_too_many_connections(dsn: str) -> None:
    """More connections than allowed are closed at once."""
    async with (
        running_node(dsn, max_connections=1) as node,
        raw(node),
        raw(node, greeted=False) as second,
    ):
        assert await second.until_closed() == b""


async def test_a_busy_topic(node: Node, ann: Peer, connection: Connection, observer: Connection) -> None:
    """A put into a topic that somebody holds waits; others pass by."""
    await ann.ask("p ann news 1 text")
    async with connected(node) as bob:
        async with connection.transaction():
            await connection.fetch("select nuncius.publish('news', 'held'::text)")
            await ann.send(b"p ann news 2 text")
            await until_somebody_waits(observer, "nuncius publish in turn")
            assert await bob.ask("p bob other 1 text") == "a 0"
        assert await ann.receive() == [b"a 0"]


async def test_a_busy_subscription(
    node: Node, ann: Peer, bob: Peer, connection: Connection, observer: Connection
) -> None:
    """A get of a subscription that somebody holds waits; others pass by."""
    await connection.fetch("select nuncius.create_topic('wide', 2)")
    assert await ann.ask("s ann wide") == "a -1"
    assert await bob.ask("s bob wide") == "a -1"
    async with connection.transaction():
        await connection.fetch("select nuncius.unsubscribe('wide', 'ann')")
        await ann.send(b"g ann wide 0")
        await until_somebody_waits(observer, "nuncius get%")
        assert await bob.ask("g bob wide 0") == "e -1"
        async with connected(node) as eve:
            assert await eve.ask("g eve wide 0") == "e ns"
    assert await ann.receive() == [b"e ns"]


async def test_the_store_goes_away(ann: Peer, observer: Connection) -> None:
    """When the connection to the store breaks, requests that may be repeated are; nothing is stored twice."""
    await ann.ask("s ann news")
    for count in range(1, 4):
        assert await terminate(observer, "nuncius publish in turn") <= 1
        assert await ann.ask(f"p bob news {count} {count}") == "a 1"
        await terminate(observer, "nuncius get")
        assert await ann.ask(f"g ann news {count - 1}") == f"a {count - 1} {count}"


async def test_silence(
    node: Node, ann: Peer, bob: Peer, caplog: pytest.LogCaptureFixture, connection: Connection
) -> None:
    """What could not be done for a reason of ours is not answered: the client asks again. It is logged."""
    await connection.execute("alter table nuncius.subscriptions rename to gone")
    with caplog.at_level(logging.WARNING):
        await ann.send(b"g ann news 0")
        await bob.send(b"s ann news")
        await until(lambda: len([r for r in caplog.records if "unanswered" in r.message]) == 2)
    await node.at_rest()
    await connection.execute("alter table nuncius.gone rename to subscriptions")


# The end


async def test_closing(dsn: str, connection: Connection, observer: Connection) -> None:
    """A node that closes answers what it accepted, gets that wait as things stand, and takes nothing new."""
    async with running_node(dsn) as node, raw(node) as waiting, raw(node) as busy:
        waiting.send([b"s ann news"])
        assert await waiting.read(6) == encode([b"a -1"])
        waiting.send([b"g ann news 0 wait=3000"])
        async with connection.transaction():
            await connection.fetch("select nuncius.publish('news', 'held'::text)")
            busy.send(*([b"p bob news %d text" % n] for n in range(1, 501)))
            await until_somebody_waits(observer, "nuncius publish in turn")
            closing = asyncio.ensure_future(node.door.close())
            assert await waiting.until_closed() == encode([b"e -1"])
            busy.send([b"p bob news 501 text"])
        assert await busy.until_closed() == encode([b"a 1"]) * 500
        await closing
    assert await connection.fetchval("select nuncius.last_count('zeromq/bob', 'topic', 'news')") == 500


async def test_closing_what_is_not_open(broker: Broker) -> None:
    """A door that was never opened can be closed."""
    await ZeromqDoor(broker).close()


async def test_names_of_jobs(ann: Peer) -> None:
    """The name of a job's subscription is invalid, to subscribe and to get."""
    assert await ann.ask("s nuncius:archive news") == "i"
    assert await ann.ask("g nuncius:archive news 0") == "i"


@pytest.mark.parametrize("broken", [b"\xf8\x00", b"\x05\x00", b"\x04\x06\x05ERROR"])
async def test_what_came_before_a_broken_frame(node: Node, broken: bytes) -> None:
    """Whole requests before a frame that makes no sense, in one segment, are carried out and answered."""
    async with raw(node) as connection:
        connection.writer.write(encode([b"p ann news 1 text"]) + encode([b"nonsense"]) + broken)
        said = await connection.until_closed()
    assert said.startswith(encode([b"a 0"]) + encode([b"i"]))
    async with connected(node) as peer:
        assert await peer.ask("p ann news 1 text") == "e 1"
