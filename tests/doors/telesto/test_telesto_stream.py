"""Connections: pieces, pipelines, limits, and the end of them."""

import asyncio
import socket

import pytest

from nuncius.broker.model import Letter
from nuncius.client import AsyncClient
from nuncius.doors.telesto import table
from nuncius.doors.telesto.codec import Codec
from nuncius.doors.telesto.table import Dialect, ErrorType, ReadMode, Request
from telesto_peer import LONG, Node, Peer, at_rest, caught_up, connected, message, one, running_node


async def test_split_at_every_position(node: Node, ann: Peer, dialect: Dialect) -> None:
    """A session works the same wherever its bytes are cut in two."""
    queue = await ann.create("q")
    requests: list[Request] = [
        table.Ping(1),
        table.IdentifyClient(2, ann.client_id),
        table.PutMessage(3, message(queue, "héllo"), []),
        table.ReadMessage(4, queue, 0, ReadMode.PRIORITY),
    ]
    stream = b"".join(map(Codec(dialect).encode, requests))
    for cut in range(1, len(stream)):
        async with connected(node, dialect) as peer:
            peer.writer.write(stream[:cut])
            await caught_up(node)
            peer.writer.write(stream[cut:])
            assert await peer.answer() == table.Pong(1)
            assert isinstance(await peer.answer(), table.IdentifyClientResponse)
            assert await peer.answer() == table.Success(3)
            assert one(await peer.answer()).text == "héllo"


async def test_byte_by_byte(node: Node, dialect: Dialect) -> None:
    """A session works one byte at a time."""
    async with connected(node, dialect) as peer:
        for byte in peer.codec.encode(table.RegisterClient(1, "slow", 1)):
            peer.writer.write(bytes([byte]))
            await caught_up(node)
        assert isinstance(await peer.answer(), table.RegisterClientResponse)


async def test_pipelining(node: Node, stranger: Peer) -> None:
    """Hundreds of requests in one write are carried out one after the other and answered in order."""
    count = 200
    stranger.send(table.RegisterClient(1, "ann", 1), table.CreateQueue(2, "q"))
    await stranger.answer()
    created = await stranger.answer()
    assert isinstance(created, table.CreateQueueResponse)
    queue = created.queue_id
    stranger.send(
        *(table.PutMessage(n, message(queue, str(n)), []) for n in range(count)),
        table.GetQueues(1000),
        *(table.ReadMessage(2000 + n, queue, 0, ReadMode.TIME) for n in range(count)),
        table.ReadMessage(3000, queue, 0, ReadMode.TIME),
        table.Ping(4000),
    )
    for n in range(count):
        assert await stranger.answer() == table.Success(n)
    assert isinstance(await stranger.answer(), table.GetQueuesResponse)
    for n in range(count):
        answer = await stranger.answer()
        assert one(answer).text == str(n)
        assert isinstance(answer, table.ReadMessageResponse)
        assert answer.packet_id == 2000 + n
    assert isinstance(await stranger.answer(), table.Error)
    assert await stranger.answer() == table.Pong(4000)
    assert node.broker.pressure.level == 0


async def test_a_client_that_closes_its_side(ann: Peer, bob: Peer) -> None:
    """Who says no more is still answered what it asked, then the connection ends; but no message is taken for
    it, for mostly it has gone."""
    queue = await ann.create("q")
    ann.send(
        *(table.PutMessage(n, message(queue, str(n)), []) for n in range(20)),
        table.GetQueueName(20, queue),
        table.ReadMessage(21, queue, 0, ReadMode.TIME),
        table.Ping(22),
    )
    ann.writer.write_eof()
    for n in range(20):
        assert await ann.answer() == table.Success(n)
    assert await ann.answer() == table.GetQueueNameResponse(20, "q")
    refused = await ann.answer()
    assert isinstance(refused, table.Error)
    assert (refused.packet_id, refused.error_type) == (21, ErrorType.IO_ERROR)
    assert await ann.answer() == table.Pong(22)
    with pytest.raises(EOFError):
        await ann.answer()
    assert [(await bob.take(queue)).text for _ in range(20)] == [str(n) for n in range(20)]


async def test_unreadable_packets_leave_the_connection(ann: Peer) -> None:
    """Unknown methods, answers sent to the node and senseless payloads are Error 1; the next is served."""
    header = 8 if ann.codec.dialect is Dialect.REPORT else 7
    unknown = bytearray(ann.codec.encode(table.Ping(5)))
    unknown[header - 5] = 0x7F
    too_short = bytearray(ann.codec.encode(table.IdentifyClient(5, 1)))[:-1]
    too_short[1] -= 1
    for bad in (unknown, too_short, ann.codec.encode(table.Pong(5)), ann.codec.encode(table.Success(5))):
        ann.writer.write(bytes(bad))
        answer = await ann.answer()
        assert isinstance(answer, table.Error)
        assert (answer.packet_id, answer.error_type) == (5, ErrorType.UNEXPECTED_PACKET)
    assert await ann.ask(table.Ping(6)) == table.Pong(6)


async def test_impossible_lengths_end_the_connection(ann: Peer, bob: Peer) -> None:
    """After an impossible length what came before is answered, then the connection ends; others live on."""
    queue = await ann.create("q")
    ann.writer.write(ann.codec.encode(table.PutMessage(1, message(queue, "x"), [])) + b"\xff\xff\x01")
    assert await ann.answer() == table.Success(1)
    last = await ann.answer()
    assert isinstance(last, table.Error)
    assert last.error_type == ErrorType.UNEXPECTED_PACKET
    with pytest.raises(EOFError):
        await ann.answer()
    assert (await bob.take(queue)).text == "x"


async def test_strangers_are_shown_the_door(node: Node) -> None:
    """A connection that begins like none of the three framings is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(b"\xffhello")
    assert await reader.read() == b""
    writer.close()


async def test_three_framings_on_one_port(node: Node) -> None:
    """Both dialects and the native protocol share a port and the messages, at the same time."""
    async with (
        connected(node, Dialect.REPORT, "ann") as ann,
        connected(node, Dialect.DEPLOYED, "bob") as bob,
        AsyncClient(f"nuncius://127.0.0.1:{node.port}") as native,
    ):
        queue = await ann.create("q")
        await ann.put(queue, "from ann")
        await bob.put(queue, "from bob")
        await native.put("q", b"from native")
        assert (await bob.take(queue, ReadMode.TIME)).text == "from ann"
        assert (await native.take("q")).text == "from bob"  # type: ignore[union-attr]
        assert (await ann.take(queue, ReadMode.TIME)).text == "from native"


# Sizes


async def test_get_messages_of_a_large_queue(ann: Peer) -> None:
    """An answer has as many of the oldest messages as it can carry; when they are read, others are seen."""
    queue = await ann.create("q")
    texts = [f"{n} " + "x" * 1500 for n in range(60)]
    for text in texts:
        await ann.put(queue, text)
    ann.send(table.GetMessages(1, queue))
    answer = await ann.answer()
    assert isinstance(answer, table.GetMessagesResponse)
    shown = [m.text for m in answer.messages]
    assert shown == texts[: len(shown)]
    assert len(shown) == (5 if ann.codec.dialect is Dialect.DEPLOYED else 21)
    await ann.take(queue, ReadMode.TIME)
    answer = await ann.ask(table.GetMessages(2, queue))
    assert isinstance(answer, table.GetMessagesResponse)
    assert [m.text for m in answer.messages] == texts[1 : len(shown) + 1]


async def test_many_small_messages(ann: Peer) -> None:
    """Messages are looked at page by page until the answer is full."""
    queue = await ann.create("q")
    ann.send(*(table.PutMessage(n, message(queue, f"{n:04}"), []) for n in range(300)))
    for _ in range(300):
        await ann.answer()
    answer = await ann.ask(table.GetMessages(1, queue))
    assert isinstance(answer, table.GetMessagesResponse)
    count = 233 if ann.codec.dialect is Dialect.DEPLOYED else 300
    assert [m.text for m in answer.messages] == [f"{n:04}" for n in range(count)]


async def test_many_queues(ann: Peer) -> None:
    """A list of queues that does not fit ends early, with whole items."""
    ann.send(*(table.CreateQueue(n, f"{n:03}" + "€" * 200) for n in range(60)))
    ids = [await ann.answer() for _ in range(60)]
    answer = await ann.ask(table.GetQueues(1))
    assert isinstance(answer, table.GetQueuesResponse)
    count = 13 if ann.codec.dialect is Dialect.DEPLOYED else 53
    assert [q.queue_id for q in answer.queues] == [
        created.queue_id for created in ids[:count] if isinstance(created, table.CreateQueueResponse)
    ]


async def test_messages_too_large_for_the_protocol(node: Node, ann: Peer) -> None:
    """A message of another door that no answer can carry is Error 0 and stays in its queue, unharmed."""
    queue = await ann.create("q")
    large = Letter(b"x" * 40_000, 7, headers='{"a":"b"}')
    await node.broker.queues.put_into_all([queue], large)
    for packet in (table.GetMessages(1, queue), table.ReadMessage(1, queue, 0, ReadMode.PRIORITY)):
        error_type, details = await ann.error(packet)
        assert error_type == ErrorType.INTERNAL_ERROR
        if ann.codec.dialect is Dialect.DEPLOYED:
            assert "too large" in details
    (kept,) = await node.broker.queues.browse(queue)
    assert (kept.body, kept.priority, kept.headers) == (large.body, 7, '{"a": "b"}')


@pytest.mark.parametrize("dialect", [Dialect.REPORT], indirect=True)
async def test_a_client_that_does_not_read(node: Node, ann: Peer, dialect: Dialect) -> None:
    """Who asks without reading the answers is not served further: the messages stay in the queue."""
    queue, count = await ann.create("q"), 600
    stored = asyncio.Event()
    letters = [Letter(b"x" * 30_000)] * count
    node.broker.queues.put_soon(queue, letters, lambda _: stored.set())
    await stored.wait()
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    narrow.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(narrow, ("127.0.0.1", node.port))
    requests: list[Request] = [table.IdentifyClient(0, ann.client_id)]
    requests += [table.ReadMessage(n, queue, 0, ReadMode.TIME) for n in range(count)]
    await loop.sock_sendall(narrow, b"".join(map(Codec(dialect).encode, requests)))
    depths = [count]
    while depths[-1] == count or len(set(depths[-50:])) > 1:
        depths.append((await node.broker.queues.info(["q"]))[0].depth)
    assert depths[-1] > 0
    narrow.close()
    await at_rest(node)


# The end of a node


async def test_closing_the_door(dsn: str, dialect: Dialect) -> None:
    """A node that shuts down tells held reads "nothing", refuses the rest with Error 2, and hangs up."""
    async with running_node(dsn, LONG) as node, connected(node, dialect, "ann") as ann:
        queue = await ann.create("q")
        ann.send(table.ReadMessage(1, queue, 0, ReadMode.TIME), table.Ping(2))
        await caught_up(node)
        await node.door.close()
        first, second = await ann.answer(), await ann.answer()
        assert isinstance(first, table.Error)
        assert first.error_type == ErrorType.NO_MESSAGES_RETRIEVED
        assert isinstance(second, table.Error)
        assert second.error_type == ErrorType.IO_ERROR
        with pytest.raises(EOFError):
            await ann.answer()
