"""Reads that wait, readers that race, and several nodes on one store."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from nuncius.doors.telesto import table
from nuncius.doors.telesto.table import Dialect, ErrorType, ReadMode, Request
from telesto_peer import LONG, Node, Peer, at_rest, caught_up, connected, one, running_node


@pytest.fixture
async def node(dsn: str) -> AsyncIterator[Node]:
    """A node that holds empty reads for very long."""
    async with running_node(dsn, LONG) as running:
        yield running


@pytest.mark.parametrize("how", ["message", "response"])
async def test_a_held_read_is_answered_by_a_put(node: Node, ann: Peer, bob: Peer, how: str) -> None:
    """A read that found nothing is answered the moment a message for it arrives, and only by that."""
    queue = await ann.create("q")
    read: Request = table.ReadMessage(1, queue, 0, ReadMode.PRIORITY)
    if how == "response":
        read = table.ReadResponse(1, queue, 5)
    ann.send(read)
    await caught_up(node)
    await bob.put(queue, "for somebody else", receiver=bob.client_id, context=5)
    start = asyncio.get_running_loop().time()
    await bob.put(queue, "for ann", receiver=ann.client_id, context=5)
    assert one(await ann.answer()).text == "for ann"
    assert asyncio.get_running_loop().time() - start < LONG / 2


async def test_a_held_read_ends(dsn: str, dialect: Dialect) -> None:
    """A read is held for the time that is set, then told that there is nothing."""
    async with running_node(dsn, 0.1) as node, connected(node, dialect, "ann") as ann:
        queue = await ann.create("q")
        loop = asyncio.get_running_loop()
        start = loop.time()
        assert await ann.finds_nothing(queue)
        assert 0.1 <= loop.time() - start < LONG / 2


async def test_requests_wait_behind_a_held_read(node: Node, ann: Peer, bob: Peer) -> None:
    """What a client sends after a held read is answered after it."""
    queue = await ann.create("q")
    ann.send(table.ReadMessage(1, queue, 0, ReadMode.TIME), table.Ping(2))
    await caught_up(node)
    await bob.put(queue, "x")
    assert one(await ann.answer()).text == "x"
    assert await ann.answer() == table.Pong(2)


async def test_a_held_connection_goes_away(node: Node, dialect: Dialect, ann: Peer) -> None:
    """A reader that goes away while it is held takes no message with it, and is forgotten."""
    queue = await ann.create("q")
    async with connected(node, dialect, "gone") as gone:
        gone.send(table.ReadMessage(1, queue, 0, ReadMode.TIME), table.Ping(2))
        await caught_up(node)
        assert node.broker.pressure.level > 0
    await at_rest(node)
    await ann.put(queue, "x")
    assert (await ann.take(queue)).text == "x"


async def test_a_held_reader_closes_its_side(node: Node, ann: Peer, bob: Peer) -> None:
    """A read that is held when its client closes its side is Error 2, and takes nothing."""
    queue = await ann.create("q")
    bob.send(table.ReadMessage(1, queue, 0, ReadMode.TIME))
    await caught_up(node)
    bob.writer.write_eof()
    refused = await bob.answer()
    assert isinstance(refused, table.Error)
    assert refused.error_type == ErrorType.IO_ERROR
    with pytest.raises(EOFError):
        await bob.answer()
    await ann.put(queue, "x")
    assert (await ann.take(queue)).text == "x"


async def test_a_connection_goes_away_while_it_reads(node: Node, dialect: Dialect, ann: Peer) -> None:
    """A message that was on its way out of the queue when its reader left goes back."""
    queue = await ann.create("q")
    for n in range(20):
        async with connected(node, dialect, f"gone {n}") as gone:
            gone.send(table.ReadMessage(1, queue, 0, ReadMode.TIME))
            await gone.writer.drain()
            gone.writer.transport.abort()
            await ann.put(queue, f"{n}")
        assert (await ann.take(queue)).text == f"{n}"


async def test_readers_race(node: Node, dialect: Dialect, ann: Peer) -> None:
    """Readers that race get each message once and strictly in order, and nobody a false "nothing"."""
    queue, readers, each = await ann.create("q"), 8, 25
    for n in range(readers * each):
        await ann.put(queue, str(n))
    seen: list[int] = []

    async def read(number: int) -> None:
        async with connected(node, dialect, f"reader {number}") as peer:
            mine = [int((await peer.take(queue)).text) for _ in range(each)]
            assert mine == sorted(mine)
            seen.extend(mine)

    await asyncio.gather(*(read(number) for number in range(readers)))
    assert sorted(seen) == list(range(readers * each))


async def test_two_nodes(dsn: str, dialect: Dialect, ann: Peer) -> None:
    """What is put through one node is read through another, at once, and a held read there is woken."""
    async with running_node(dsn, LONG) as second, connected(second, dialect) as peer:
        answer = await peer.ask(table.IdentifyClient(1, ann.client_id))
        assert isinstance(answer, table.IdentifyClientResponse)
        queue = await ann.create("q")
        await ann.put(queue, "first")
        assert (await peer.take(queue)).text == "first"
        peer.send(table.ReadMessage(2, queue, 0, ReadMode.TIME))
        await caught_up(second)
        async with asyncio.timeout(LONG / 2):
            await ann.put(queue, "second")
            assert one(await peer.answer()).text == "second"
        await ann.ask(table.DeleteQueue(3, queue))
        assert (await peer.error(table.GetQueueName(4, queue)))[0] == ErrorType.QUEUE_NOT_EXISTING
