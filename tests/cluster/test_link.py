"""The connection between nodes: frames in any pieces, nonsense from either side, and every kind of answer."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cluster.inside import Node, node
from nuncius.broker import Broker
from nuncius.broker.errors import CallFailed, InvalidInput, NoSuchTopic, OutcomeUnknown, StoreUnavailable
from nuncius.broker.limits import Limits
from nuncius.broker.model import FetchedEntries
from nuncius.cluster.link import codec as link_codec
from nuncius.cluster.link.codec import (
    LinkAnswers,
    LinkDecoder,
    LinkFailed,
    LinkFound,
    LinkRequests,
    LinkSent,
    Look,
    Moved,
    Send,
)
from nuncius.cluster.link.link import BrokerLink, Forward
from nuncius.cluster.link.server import LinkServer
from nuncius.store.calls.fetching import FetchCall
from nuncius.store.driver import Connection
from nuncius.testing import free_port
from racing import until


def send(bodies: list[bytes], **fields: Any) -> Send:
    values = {"store_id": 1, "publisher_id": 0, "publisher": "", "count": 0, **fields}
    return Send(
        0,
        values["store_id"],
        1,
        "news",
        1,
        bodies,
        None,
        None,
        values["publisher_id"],
        values["publisher"],
        values["count"],
    )


@pytest.fixture
async def served(broker: Broker) -> AsyncIterator[tuple[LinkServer, int]]:
    """A broker's end, and its port."""
    server = LinkServer(broker)
    port = await server.open("127.0.0.1", free_port())
    yield server, port
    await server.close()


@pytest.fixture
async def link(served: tuple[LinkServer, int]) -> AsyncIterator[BrokerLink]:
    made = BrokerLink("127.0.0.1", served[1], "test")
    yield made
    made.leave()


async def forwarded(link: BrokerLink, what: Send) -> Any:
    """What became of it; a connection that broke is a ConnectionError."""
    result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    link.forward(Forward(what, result.set_result, lambda _: result.set_result(ConnectionError())))
    return await asyncio.wait_for(result, 60)


def test_frames_in_pieces() -> None:
    """Frames are read however the bytes are cut, and several at once."""
    messages = [
        LinkAnswers([LinkSent(1, 2, 3, 0, [(1, 2)])], [], []),
        LinkAnswers(
            [],
            [LinkFound(2, FetchedEntries(5, [1], None, ["{}"], [b"x" * 100]))],
            [LinkFailed(3, "moved", "away")],
        ),
    ]
    data = b"".join(map(link_codec.encode, messages))
    for size in (1, 7, len(data)):
        decoder = LinkDecoder(LinkAnswers)
        found = [
            answers for at in range(0, len(data), size) for answers in decoder.receive(data[at : at + size])
        ]
        assert found == messages
    with pytest.raises(ValueError, match="a frame of"):
        list(LinkDecoder(LinkRequests).receive(b"\xff\xff\xff\xff"))


@pytest.mark.parametrize(
    "error",
    [
        Moved("a"),
        InvalidInput("b"),
        NoSuchTopic("c"),
        StoreUnavailable("d"),
        OutcomeUnknown("e"),
        CallFailed("f"),
    ],
)
def test_errors_travel(error: Exception) -> None:
    """An error is the same at the other end; one that is none of ours leaves the outcome open."""
    again = link_codec.error_of(link_codec.failure(1, error))
    assert (type(again), str(again)) == (type(error), str(error))
    assert isinstance(link_codec.error_of(link_codec.failure(1, KeyError("x"))), OutcomeUnknown)


async def test_stored(broker: Broker, link: BrokerLink) -> None:
    """Entries get an identity of the connection, so that what is sent again is known."""
    first = send([b"a", b"b"])
    assert (await forwarded(link, first)).offset == 0
    assert (await forwarded(link, send([b"c"]))).offset == 2
    assert (await forwarded(link, first)).skipped == 2
    alice = await broker.publishers.find("alice", lasting=True)
    named = {"publisher_id": alice.publisher_id, "publisher": "alice", "count": 1}
    assert [(await forwarded(link, send([b"d"], **named))).skipped for _ in range(2)] == [0, 1]


async def test_refused(broker: Broker, link: BrokerLink) -> None:
    """What a broker does not have, or does not accept, it says."""
    assert isinstance(await forwarded(link, send([b"x"], store_id=7)), Moved)
    looked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    link.look(FetchCall(looked.set_result, None, 1, 0, 10))
    assert isinstance(await looked, Moved)
    broker.limits = Limits(max_body=1)
    assert isinstance(await forwarded(link, send([b"x"] * 20_000)), InvalidInput)
    assert isinstance(await forwarded(link, send([b"x"], publisher="p" * 300, count=1)), InvalidInput)


async def test_nonsense_for_a_broker(served: tuple[LinkServer, int], link: BrokerLink) -> None:
    """It hangs up on whoever talks nonsense, and serves the others."""
    for nonsense in (b"\xff" * 8, b"\0\0\0\1\xc1"):
        reader, writer = await asyncio.open_connection("127.0.0.1", served[1])
        writer.write(nonsense)
        assert await reader.read() == b""
        writer.close()
    assert (await forwarded(link, send([b"a"]))).offset == 0


async def test_nonsense_from_a_broker() -> None:
    """A connection on which nonsense comes ends, and what was under way goes back to whoever sent it."""

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"\0\0\0\1\xc1")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        link = BrokerLink("127.0.0.1", server.sockets[0].getsockname()[1], "test")
        assert isinstance(await forwarded(link, send([b"a"])), ConnectionError)
        assert link.is_down
        link.leave()


async def test_nobody_there(served: tuple[LinkServer, int]) -> None:
    """A broker that cannot be reached gives everything back, unsent; found again, it is used again."""
    server, port = served
    await server.close()
    link = BrokerLink("127.0.0.1", port, "test")
    lost: asyncio.Future[Forward] = asyncio.get_running_loop().create_future()
    link.forward(Forward(send([b"a"]), lost.set_exception, lost.set_result))
    assert not (await lost).was_sent
    looked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    link.look(FetchCall(looked.set_result, None, 1, 0, 10))
    assert await looked is None  # as if there were nothing
    await server.open("127.0.0.1", port)
    link.probe(10)
    await link.probed()
    assert not link.is_down
    assert (await forwarded(link, send([b"a"]))).offset == 0
    link.leave()


async def test_large_amounts(broker: Broker, served: tuple[LinkServer, int], link: BrokerLink) -> None:
    """More than fits into a frame goes in several; a broker that has too much to do does not read on."""
    broker.pressure.add(1 << 30)
    results = [asyncio.ensure_future(forwarded(link, send([b"x" * (1 << 20)]))) for _ in range(12)]
    await until(lambda: any(not peer.transport.is_reading() for peer in served[0].peers))
    broker.pressure.remove(1 << 30)
    assert [(await result).offset for result in results] == list(range(12))


async def test_a_node_that_is_gone_gets_no_answer(
    connection: Connection,
    broker: Broker,
    served: tuple[LinkServer, int],
    link: BrokerLink,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What it sent is stored, and nothing else happens."""
    await broker.topics.create("news")
    async with connection.transaction():
        await connection.execute("lock table nuncius.entries in share mode")  # nothing is stored
        sent = asyncio.ensure_future(forwarded(link, send([b"a"])))
        await until(lambda: broker.pressure.level > 0)
        link.leave()
        assert isinstance(await sent, ConnectionError)
        await until(lambda: not served[0].peers)
    await until(lambda: broker.pressure.level == 0)
    (info,) = await broker.topics.find(["news"])
    assert info.partitions[0].next_offset == 1
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_a_node_that_stops_answers_first(dsn: str, connection: Connection) -> None:
    """What was accepted is answered before the connection ends."""
    async with node(dsn, "writer", port=7001) as writer, node(dsn, "broker", port=1000) as made:
        await until(lambda: known(writer))
        await writer.broker.topics.publish("news", [b"0"])
        async with connection.transaction():
            await connection.execute("lock table nuncius.entries in share mode")  # nothing is stored
            calls = [asyncio.ensure_future(writer.broker.topics.publish("news", [b"x"])) for _ in range(50)]
            await until(lambda: made.broker.pressure.level > 0)
            server = made.participant.server
            closing = asyncio.ensure_future(server.close())
            await until(lambda: not any(peer.transport.is_reading() for peer in server.peers))
            assert not closing.done()
        await closing
        answered = await asyncio.gather(*calls, return_exceptions=True)
        assert not [each for each in answered if isinstance(each, OutcomeUnknown)]


def known(writer: Node) -> bool:
    return bool(writer.participant.router.forwarding.members)


def test_requests_travel() -> None:
    """Requests arrive as they were made."""
    requests = LinkRequests([send([b"a"], publisher="p", count=3)], [Look(1, 2, 3, 4)])
    assert list(LinkDecoder(LinkRequests).receive(link_codec.encode(requests))) == [requests]
