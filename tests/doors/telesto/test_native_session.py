"""A session of the native protocol, over a real socket."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker.inside import put, queue, readers, until_waiting_for
from native_peer import NativePeer, connections, open_door, open_peer
from nuncius.broker import Broker
from nuncius.doors.native import delivery
from nuncius.doors.telesto.table import Dialect
from nuncius.node.shared_port import TelestoDoor
from nuncius.store.driver import Connection
from nuncius.store.pressure import TOO_SLOW
from nuncius.wire import codec as native
from nuncius.wire import packets
from nuncius.wire.packets import ErrorCode
from racing import until, until_somebody_waits
from telesto_peer import Node, connected


@pytest.fixture
async def door(broker: Broker) -> AsyncIterator[tuple[TelestoDoor, int]]:
    async with open_door(broker) as opened:
        yield opened


@pytest.fixture
async def peer(door: tuple[TelestoDoor, int]) -> AsyncIterator[NativePeer]:
    """A welcomed connection with a client and a publisher."""
    made = await open_peer(door[1])
    await made.hello("ann", 1, "ann")
    yield made
    await made.close()


@pytest.fixture
async def stranger(door: tuple[TelestoDoor, int]) -> AsyncIterator[NativePeer]:
    """A connection that has not said anything."""
    made = await open_peer(door[1])
    yield made
    await made.close()


async def quiet(broker: Broker) -> None:
    """Returns when nothing that was accepted is unanswered; fails if that never happens."""
    await until(lambda: broker.pressure.level == 0, 10)


# Hello


async def test_hello_first(stranger: NativePeer, broker: Broker) -> None:
    """Whoever has not said Hello is told to, and may do it then."""
    stranger.write(native.MAGIC)
    for packet in (packets.Ping(5), packets.Publish(6, "t", [b"x"]), packets.Take(7, "q")):
        stranger.send(packet)
        error = await stranger.expect(packets.Error)
        assert (error.request, error.code) == (packet.request, ErrorCode.PROTOCOL)
        assert "Hello" in error.text
    stranger.send(packets.Hello(8, "ann"))
    welcome = await stranger.expect(packets.Welcome)
    assert (welcome.request, welcome.max_body) == (8, broker.limits.max_body)
    assert welcome.client_id == (await broker.clients.find("ann")).client_id
    assert isinstance(await stranger.ask(packets.Ping), packets.Pong)
    await quiet(broker)


async def test_requests_behind_hello(stranger: NativePeer, broker: Broker) -> None:
    """Requests may follow Hello at once: they are carried out when it is answered, in order."""
    stranger.write(native.MAGIC)
    stranger.send(
        packets.Hello(1, "ann", 1, "ann"),
        packets.Publish(2, "t", [b"x"], None, None, 0, 1),
        packets.Ping(3),
        packets.Hello(4),
    )
    assert (await stranger.expect(packets.Welcome)).request == 1
    answers = [await stranger.receive() for _ in range(3)]
    kinds = {answer.request: type(answer) for answer in answers}
    assert kinds == {2: packets.Published, 3: packets.Pong, 4: packets.Error}
    await quiet(broker)


async def test_requests_behind_a_bad_hello(stranger: NativePeer) -> None:
    """When Hello is refused, so are the requests behind it, until one is welcome."""
    stranger.write(native.MAGIC)
    stranger.send(packets.Hello(1, "a\nb"), packets.Ping(2), packets.Hello(3), packets.Ping(4))
    answers = {answer.request: type(answer) for answer in [await stranger.receive() for _ in range(4)]}
    assert answers == {1: packets.Error, 2: packets.Error, 3: packets.Welcome, 4: packets.Pong}


async def test_counted_as_native(door: tuple[TelestoDoor, int], peer: NativePeer, broker: Broker) -> None:
    """Connections and messages of the native protocol are counted under its own name, not Telesto's."""
    assert isinstance(await peer.ask(packets.Publish, "t", [b"x"]), packets.Published)
    async with connected(Node(broker, *door), Dialect.REPORT, "bob") as bob:
        await bob.put(await bob.create("q"), "text")
        assert broker.counters.connections == {"telesto": 1, "native": 1}
    totals = broker.counters.totals
    assert (totals["native", "published"], totals["telesto", "put"]) == (1, 1)
    assert ("telesto", "published") not in totals


async def test_magic_in_pieces(stranger: NativePeer) -> None:
    """The first bytes may come one by one, together with what follows."""
    for byte in native.MAGIC + native.encode(packets.Hello(1)):
        stranger.write(bytes([byte]))
        await asyncio.sleep(0)
    assert (await stranger.expect(packets.Welcome)).client_id == 0


async def test_packets_that_do_not_end(
    door: tuple[TelestoDoor, int], peer: NativePeer, broker: Broker
) -> None:
    """When too much has begun and does not end, the slowest connection is cut off; others are let be."""
    broker.pressure.budget = 6 << 20
    first, second = await open_peer(door[1]), await open_peer(door[1])
    for each in (first, second):
        each.write(native.MAGIC + (8 << 20).to_bytes(4, "big") + bytes(2 << 20))
        await until(lambda: broker.pressure.held > 2 << 20)
    assert (await first.expect(packets.Error)).text == TOO_SLOW
    assert isinstance(await peer.ask(packets.Ping), packets.Pong)
    for each in (first, second):
        await each.close()
    await until(lambda: broker.pressure.held == 0)


async def test_hello_twice(peer: NativePeer) -> None:
    """One Hello is enough."""
    peer.send(packets.Hello(50))
    await peer.refused(ErrorCode.INVALID)


@pytest.mark.parametrize("hello", [("a\nb",), ("", 1, "a\0"), ("ann", 7), ("x" * 300,)])
async def test_bad_hello(stranger: NativePeer, hello: tuple[object, ...]) -> None:
    """A Hello with a bad name or mode is refused; a better one may follow."""
    stranger.write(native.MAGIC)
    stranger.send(packets.Hello(1, *hello))  # type: ignore[arg-type]
    await stranger.refused(ErrorCode.INVALID)
    stranger.send(packets.Hello(2))
    await stranger.expect(packets.Welcome)


async def test_identify_later(stranger: NativePeer) -> None:
    """An anonymous connection may take a name later, once, and give it up."""
    await stranger.hello()
    number = await stranger.ask(packets.Identify, "late")
    assert number.value > 0
    assert (await stranger.ask(packets.Identify, "later")).code == ErrorCode.INVALID
    assert (await stranger.ask(packets.FindClient, "late")).value == number.value
    assert isinstance(await stranger.ask(packets.Forget), packets.Done)
    assert (await stranger.ask(packets.FindClient, "late")).code == ErrorCode.NOT_FOUND


# Errors


async def test_errors_name_their_request(peer: NativePeer) -> None:
    """Every refusal has the request's id and the code for its kind, and the connection goes on."""
    cases: list[tuple[packets.Packet, int]] = [
        (packets.Put(31, ["nothing"], [b"x"], [5]), ErrorCode.NOT_FOUND),
        (packets.Take(32, "nothing"), ErrorCode.NOT_FOUND),
        (packets.Take(33, "a\0b"), ErrorCode.INVALID),
        (packets.Fetch(34, "nothing", 1, 0, 10), ErrorCode.NOT_FOUND),
        (packets.DeleteTopic(35, "nothing"), ErrorCode.NOT_FOUND),
        (packets.Publish(36, "t", []), ErrorCode.INVALID),
        (packets.Publish(37, "t", [b"x"], ["a", "b"]), ErrorCode.INVALID),
        (packets.Publish(38, "", [b"x"]), ErrorCode.INVALID),
        (packets.Publish(39, "t", [b"x"], None, ["no json"]), ErrorCode.INVALID),
        (packets.Publish(40, "t", [b"x"], None, None, 0, -3), ErrorCode.INVALID),
        (packets.Publish(41, "t", [b"x"], None, None, 77), ErrorCode.FAILED),
        (packets.Put(42, [], [b"x"], [5]), ErrorCode.INVALID),
        (packets.Put(43, ["q"], [b"x"], []), ErrorCode.INVALID),
        (packets.Put(44, ["q", "r"], [b"x", b"y"], [5, 5]), ErrorCode.INVALID),
        (packets.Attach(45, "t", "nobody", 10), ErrorCode.NOT_FOUND),
        (packets.Confirm(46, "t", "nobody", 1, 0), ErrorCode.NOT_FOUND),
        (packets.Unsubscribe(47, "t", "nobody"), ErrorCode.NOT_FOUND),
        (packets.Subscribe(48, "t", "s", "tomorrow"), ErrorCode.INVALID),
        (packets.LastCount(49, "kind", "x"), ErrorCode.INVALID),
        (packets.SetRetention(50, "t", "sometimes"), ErrorCode.INVALID),
        (packets.CreateTopic(51, "t2", 0), ErrorCode.INVALID),
        (packets.Browse(52, "q", 0, 0), ErrorCode.INVALID),
    ]
    for packet, code in cases:
        peer.send(packet)
        error = await peer.expect(packets.Error)
        assert (error.request, error.code) == (packet.request, code), error
        assert error.text
    assert isinstance(await peer.ask(packets.Ping), packets.Pong)


@pytest.mark.parametrize("number", [2**31, 2**63, 2**64 - 1, -1])
async def test_absurd_numbers(peer: NativePeer, broker: Broker, number: int) -> None:
    """Numbers beyond all bounds get an answer to their request, never a fault of the node."""
    await queue(broker)
    await broker.topics.publish("t", [b"x"])
    await broker.subscriptions.subscribe("t", "s")
    absurd: list[packets.Packet] = [
        packets.Ping(number),
        packets.Publish(1, "t", [b"x"], None, None, number),
        packets.Publish(1, "t", [b"x"], None, None, 0, number),
        packets.Fetch(1, "t", number, 0, 1),
        packets.Fetch(1, "t", 1, number, 1),
        packets.Fetch(1, "t", 1, 0, number),
        packets.Fetch(1, "t", 1, 0, 1, number),
        packets.CreateTopic(1, "u", number),
        packets.GrowTopic(1, "t", number),
        packets.SetRetention(1, "t", "time", number),
        packets.SetRetention(1, "t", "size", None, number),
        packets.Confirm(1, "t", "s", number, 0),
        packets.Confirm(1, "t", "s", 1, number),
        packets.Put(1, ["jobs"], [b"x"], [number]),
        packets.Put(1, ["jobs"], [b"x"], [5], [number]),
        packets.Put(1, ["jobs"], [b"x"], [5], None, [number]),
        packets.Put(1, ["jobs"], [b"x"], [5], None, None, None, number),
        packets.Take(1, "jobs", number),
        packets.Take(1, "jobs", 1, number),
        packets.Take(1, "jobs", 1, 1, number),
        packets.Take(1, "jobs", 1, 1, 0, number),
        packets.Browse(1, "jobs", number),
        packets.Browse(1, "jobs", 0, number),
        packets.Detach(1, number),
    ]
    for packet in absurd:
        peer.send(packets.Withdraw(2, number), packets.Credit(number, number), packet)
        answer = await peer.receive()
        assert answer is not None, packet
        assert answer.request == packet.request
        assert not (isinstance(answer, packets.Error) and answer.code == ErrorCode.INTERNAL), packet
    await quiet(broker)


async def test_unreadable_packets(peer: NativePeer) -> None:
    """A frame that makes no sense is refused, and the next one is served."""
    peer.write(b"\x00\x00\x00\x03\x92\x7f\x09" + native.encode(packets.Ping(3)))
    error = await peer.expect(packets.Error)
    assert (error.request, error.code) == (9, ErrorCode.PROTOCOL)
    assert await peer.expect(packets.Pong) == packets.Pong(3)


async def test_answers_are_not_requests(peer: NativePeer) -> None:
    """A packet of the other direction is refused."""
    peer.send(packets.Pong(4))
    await peer.refused(ErrorCode.PROTOCOL)


async def test_a_count_without_a_publisher(stranger: NativePeer, broker: Broker) -> None:
    """Who counts has to have said who counts."""
    await queue(broker)
    await stranger.hello()
    stranger.send(packets.Publish(1, "t", [b"x"], None, None, 0, 1))
    await stranger.refused(ErrorCode.INVALID)
    stranger.send(packets.Put(2, ["jobs"], [b"x"], [5], None, None, None, 1))
    await stranger.refused(ErrorCode.INVALID)
    stranger.send(packets.LastCount(3, "topic", "t"))
    await stranger.refused(ErrorCode.INVALID)


async def test_read_only(stranger: NativePeer, broker: Broker) -> None:
    """A read-only client may read, and not write or look after things."""
    jobs = await queue(broker)
    await put(broker, jobs, b"x")
    await stranger.hello("reader", 2)
    for packet in (
        packets.Publish(1, "t", [b"x"]),
        packets.Put(2, ["jobs"], [b"x"], [5]),
        packets.Ask(3, "jobs", b"x"),
        packets.CreateQueue(4, "more"),
        packets.PurgeQueue(5, "jobs"),
        packets.DeleteQueue(6, "jobs"),
        packets.CreateTopic(7, "t"),
        packets.PurgeTopic(8, "t"),
        packets.DeleteTopic(9, "t"),
        packets.SetRetention(10, "t", "subscribers"),
        packets.GrowTopic(11, "t", 2),
    ):
        stranger.send(packet)
        await stranger.refused(ErrorCode.NOT_ALLOWED)
    taken = await stranger.ask(packets.Take, "jobs")
    assert [message.body for message in taken.messages] == [b"x"]


# Messages


async def test_one_write_one_answer_each(peer: NativePeer, broker: Broker) -> None:
    """Requests that arrive together are answered each, and a publisher's counts stay in order."""
    peer.send(*(packets.Publish(n, "t", [b"%d" % n], None, None, 0, n) for n in range(1, 101)))
    answers = [await peer.expect(packets.Published) for _ in range(100)]
    assert {(a.request, a.offset) for a in answers} == {(n, n - 1) for n in range(1, 101)}
    peer.send(packets.Publish(200, "t", [b"100", b"101"], None, None, 0, 100))
    again = await peer.expect(packets.Published)
    assert (again.offset, again.skipped) == (100, 1)
    await quiet(broker)


async def test_into_one_and_into_several_in_order(
    peer: NativePeer, broker: Broker, other: Connection, observer: Connection
) -> None:
    """Counted puts into one queue, and into several beginning with it, are stored in the order sent."""
    jobs, more = await queue(broker), await queue(broker, "more")
    held = await queue(broker, "held")
    for name in ("jobs", "more", "held"):
        await broker.queues.names.find(name)
    await other.execute("begin")
    await other.execute("select nuncius.put_message($1, 0, 0, 0, 5, 'x')", held)
    peer.send(
        packets.Put(1, ["held"], [b"slow"], [5]),
        packets.Put(2, ["jobs"], [b"1"], [5], None, None, None, 1),
        packets.Put(3, ["jobs", "more"], [b"2"], [5], None, None, None, 2),
        packets.Put(4, ["jobs"], [b"3"], [5], None, None, None, 3),
    )
    answers = {}
    for _ in range(3):
        answer = await peer.expect(packets.PutDone)
        answers[answer.request] = answer
    assert [answers[n].skipped for n in (2, 3, 4)] == [0, 0, 0]
    await until_somebody_waits(observer, "nuncius put and take")
    await other.execute("commit")
    assert (await peer.expect(packets.PutDone)).request == 1
    taken = await broker.queues.take(jobs, limit=9)
    assert [message.body for message in taken] == [b"1", b"2", b"3"]
    assert len(await broker.queues.take(more, limit=9)) == 1


async def test_withdraw_a_take(peer: NativePeer, broker: Broker) -> None:
    """A take that is withdrawn is answered with nothing, and takes nothing any more."""
    jobs = await queue(broker)
    peer.send(packets.Take(5, "jobs", 1, 1, 0, 0, 60_000))
    await until_waiting_for(broker, jobs)
    peer.send(packets.Withdraw(6, 5))
    assert (await peer.expect(packets.Messages)).messages == []
    await put(broker, jobs, b"x")
    assert len(await broker.queues.browse(jobs)) == 1
    await quiet(broker)


async def test_withdraw_at_once(peer: NativePeer, broker: Broker) -> None:
    """A request and its withdrawal in one breath: it is answered, and takes nothing."""
    jobs = await queue(broker)
    await broker.topics.publish("t", [b"x"])
    peer.send(packets.Take(5, "jobs", 1, 1, 0, 0, 60_000), packets.Withdraw(6, 5))
    assert (await peer.receive()).request == 5
    peer.send(packets.Fetch(7, "t", 1, 5, 1, 60_000), packets.Withdraw(8, 7))
    assert (await peer.receive()).request == 7
    await put(broker, jobs, b"x")
    assert isinstance(await peer.ask(packets.Ping), packets.Pong)
    assert len(await broker.queues.browse(jobs)) == 1
    await quiet(broker)


async def test_withdraw_a_fetch(peer: NativePeer, broker: Broker) -> None:
    """A waiting fetch may be withdrawn too."""
    await broker.topics.create("t")
    peer.send(packets.Fetch(7, "t", 1, 0, 1, 60_000))
    await until(lambda: readers(broker) == 1)
    peer.send(packets.Withdraw(8, 7))
    assert (await peer.receive()).request == 7
    assert readers(broker) == 0


async def test_a_connection_that_ends_while_it_waits(
    peer: NativePeer, broker: Broker, door: tuple[TelestoDoor, int]
) -> None:
    """Who goes away while waiting leaves nothing behind, and takes nothing with it."""
    jobs, questions = await queue(broker), await queue(broker, "questions")
    await broker.topics.create("t")
    await broker.subscriptions.subscribe("t", "s")
    peer.send(
        packets.Take(5, "jobs", 1, 1, 0, 0, 60_000),
        packets.Fetch(6, "t", 1, 0, 1, 60_000),
        packets.Attach(7, "t", "s", 10),
        packets.Ask(8, "questions", b"question"),
    )
    await peer.expect(packets.Done)
    await until(lambda: readers(broker) == 2)
    await until_waiting_for(broker, questions)
    await peer.close()
    await until(lambda: connections(door[0]) == 0)
    await put(broker, jobs, b"x")
    await quiet(broker)
    await until(lambda: readers(broker) == 0)
    assert [message.body for message in await broker.queues.take(jobs, limit=9)] == [b"x"]


async def test_a_connection_that_ends_before_its_queue_is_found(
    peer: NativePeer, broker: Broker, door: tuple[TelestoDoor, int], other: Connection
) -> None:
    """A take whose queue is still being looked up when its connection ends takes nothing."""
    jobs = await queue(broker)
    await put(broker, jobs, b"x")
    await other.execute("begin")
    await other.execute("lock table nuncius.queues")
    peer.send(packets.Take(5, "jobs", 1, 1, 0, 0, 60_000))
    await until_somebody_waits(other, "nuncius pool")
    await peer.close()
    await until(lambda: connections(door[0]) == 0)
    await other.execute("commit")
    await quiet(broker)
    assert len(await broker.queues.browse(jobs)) == 1


async def test_large_takes(peer: NativePeer, broker: Broker) -> None:
    """Messages that are large together arrive all the same: none is taken and lost."""
    jobs = await queue(broker)
    for _ in range(5):
        await put(broker, jobs, b"x" * (8 << 20))
    total = 0
    while total < 5:
        peer.send(packets.Take(5, "jobs", 5))
        answer = await peer.expect(packets.Messages)
        assert answer.messages
        total += len(answer.messages)


# Deliveries


async def test_deliveries_keep_to_the_credit(peer: NativePeer, broker: Broker) -> None:
    """The node delivers what credit allows, over all partitions, and not an entry more."""
    await broker.topics.create("t", 3)
    await broker.subscriptions.subscribe("t", "s")
    for partition in (1, 2, 3):
        await broker.topics.publish("t", [b"%d" % n for n in range(20)], partition=partition)
    peer.send(packets.Attach(5, "t", "s", 10))
    await peer.expect(packets.Done)
    allowed, got = 10, 0
    for more in (0, 1, 5, 2, 20, 22):
        if more:
            peer.send(packets.Credit(5, more))
        allowed += more
        while got < allowed:
            entries = await peer.expect(packets.Entries)
            assert entries.request == 5
            got += len(entries.bodies)
        assert got == allowed
        assert isinstance(await peer.ask(packets.Ping), packets.Pong)
    assert got == 60


async def deliveries(peer: NativePeer, request: int, count: int) -> list[tuple[int, bytes]]:
    """The offsets and bodies of the next entries, however many come in one packet."""
    found: list[tuple[int, bytes]] = []
    while len(found) < count:
        entries = await peer.expect(packets.Entries)
        assert entries.request == request
        found += enumerate(entries.bodies, entries.first)
    return found


async def test_detach(peer: NativePeer, broker: Broker) -> None:
    """After Detach nothing is delivered; attaching again begins after what is confirmed."""
    await broker.subscriptions.subscribe("t", "s")
    await broker.topics.publish("t", [b"0", b"1", b"2"])
    peer.send(packets.Attach(5, "t", "s", 100))
    await peer.expect(packets.Done)
    assert (await peer.expect(packets.Entries)).bodies == [b"0", b"1", b"2"]
    assert isinstance(await peer.ask(packets.Confirm, "t", "s", 1, 2), packets.Done)
    assert isinstance(await peer.ask(packets.Detach, 5), packets.Done)
    await broker.topics.publish("t", [b"3"])
    assert isinstance(await peer.ask(packets.Ping), packets.Pong)
    peer.send(packets.Attach(6, "t", "s", 100))
    await peer.expect(packets.Done)
    assert await deliveries(peer, 6, 2) == [(2, b"2"), (3, b"3")]
    assert isinstance(await peer.ask(packets.Detach, 99), packets.Done)


async def test_attach_needs_credit_and_a_new_id(peer: NativePeer, broker: Broker) -> None:
    """Attach with no credit, or with the id of another that is in force, is refused."""
    await broker.subscriptions.subscribe("t", "s")
    peer.send(packets.Attach(5, "t", "s", 0))
    await peer.refused(ErrorCode.INVALID)
    peer.send(packets.Attach(5, "t", "s", 1))
    await peer.expect(packets.Done)
    peer.send(packets.Attach(5, "t", "s", 1))
    await peer.refused(ErrorCode.INVALID)


async def test_subscribing_again_on_the_same_connection(peer: NativePeer, broker: Broker) -> None:
    """A subscription that was ended and made again is found by the connection that knew the old one."""
    for n in range(2):
        assert (await peer.ask(packets.Subscribe, "t", "s")).created
        await broker.topics.publish("t", [b"x"])
        attach = packets.Attach(peer.next_request(), "t", "s", 100)
        peer.send(attach)
        await peer.expect(packets.Done)
        assert (await peer.expect(packets.Entries)).first == n
        assert isinstance(await peer.ask(packets.Confirm, "t", "s", 1, n + 1), packets.Done)
        assert isinstance(await peer.ask(packets.Detach, attach.request), packets.Done)
        assert isinstance(await peer.ask(packets.Unsubscribe, "t", "s"), packets.Done)


async def test_the_end_of_a_delivery(peer: NativePeer, broker: Broker) -> None:
    """When the subscription or its topic goes, the delivery ends with an error under its id."""
    await broker.subscriptions.subscribe("t", "s")
    peer.send(packets.Attach(5, "t", "s", 100))
    await peer.expect(packets.Done)
    await until(lambda: readers(broker) == 1)
    await broker.topics.delete("t")
    error = await peer.expect(packets.Error)
    assert (error.request, error.code) == (5, ErrorCode.NOT_FOUND)


# The end


async def test_shutting_down(broker: Broker) -> None:
    """A node that shuts down answers what it has accepted, sends waiting readers away, and closes."""
    await queue(broker)
    await broker.topics.create("t")
    async with open_door(broker) as (door, port):
        peer = await open_peer(port)
        await peer.hello("ann", 1, "ann")
        peer.send(packets.Take(5, "jobs", 1, 1, 0, 0, 60_000), packets.Fetch(6, "t", 1, 0, 1, 60_000))
        await until(lambda: readers(broker) == 1)
        peer.send(*(packets.Publish(n, "t", [b"x"], None, None, 0, n) for n in range(10, 60)))
        await until(lambda: broker.pressure.level > 10_000)
        async with asyncio.timeout(40):
            await door.close()
        answers = {}
        while (packet := await peer.receive()) is not None:
            answers[packet.request] = packet
        assert answers[5].code == ErrorCode.CLOSING
        assert answers[6].code == ErrorCode.CLOSING
        assert all(isinstance(answers[n], packets.Published) for n in range(10, 60))
        await peer.close()


async def test_attaching_twice_with_one_number(peer: NativePeer, broker: Broker) -> None:
    """The second of two Attaches with one request id is refused, however soon it comes."""
    await broker.subscriptions.subscribe("news", "sue", start="earliest")
    peer.send(packets.Attach(90, "news", "sue", 10), packets.Attach(90, "news", "sue", 10))
    assert "new request id" in await peer.refused(ErrorCode.INVALID)
    await peer.expect(packets.Done)
    await broker.topics.publish("news", [b"x"])
    assert (await peer.expect(packets.Entries)).bodies == [b"x"]
    assert isinstance(await peer.ask(packets.Detach, 90), packets.Done)
    await until(lambda: readers(broker) == 0)


async def test_attaching_too_often(peer: NativePeer, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection has so many subscriptions delivered and no more; one that is detached makes room."""
    monkeypatch.setattr(delivery, "MAX_ATTACHED", 3)
    await broker.subscriptions.subscribe("news", "sue")
    for number in (90, 91, 92):
        peer.send(packets.Attach(number, "news", "sue", 10))
        await peer.expect(packets.Done)
    peer.send(packets.Attach(93, "news", "sue", 10))
    assert "at most 3" in await peer.refused(ErrorCode.INVALID)
    await peer.ask(packets.Detach, 91)
    peer.send(packets.Attach(93, "news", "sue", 10))
    await peer.expect(packets.Done)


async def test_detaching_at_once(peer: NativePeer, broker: Broker) -> None:
    """A Detach that follows its Attach before that is answered ends it."""
    await broker.subscriptions.subscribe("news", "sue", start="earliest")
    await broker.topics.publish("news", [b"x"])
    peer.send(packets.Attach(90, "news", "sue", 10), packets.Detach(91, 90))
    answers = [await peer.expect(packets.Done), await peer.expect(packets.Done)]
    assert {answer.request for answer in answers} == {90, 91}
    assert isinstance(await peer.ask(packets.Ping), packets.Pong)
