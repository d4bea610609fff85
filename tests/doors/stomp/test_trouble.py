"""What broke the authors' broker, and other trouble: bursts, early ends, slow readers, a store that is
away."""

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from doors.stomp.peer import SECONDS, Node, Peer, connected, running_node, stranger, until_left
from doors.stomp.test_queues import leases
from nuncius.store.driver import Connection
from nuncius.store.server import embedded
from racing import until

BURST = 1000
CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
SLIM_CONNECT = b"CONNECT\nlogin:me\n\n\0"


async def greet(node: Node, hello: bytes) -> Peer:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(hello)
    answer = await reader.readuntil(b"\0")
    assert answer.startswith(b"CONNECTED\n")
    return Peer(reader, writer)


@pytest.mark.parametrize("hello", [CONNECT, SLIM_CONNECT], ids=["real", "slim"])
async def test_a_burst_of_connections(node: Node, hello: bytes) -> None:
    """A thousand clients that connect at once are all answered."""
    async with asyncio.timeout(60):
        peers = await asyncio.gather(*(greet(node, hello) for _ in range(BURST)))
        assert node.door.connections == BURST
        await asyncio.gather(*(peer.close() for peer in peers))
    await until_left(node, 0)


async def test_a_burst_of_subscribers(node: Node, ann: Peer) -> None:
    """Hundreds of clients that subscribe at once, get a message and leave at once, leave nothing behind."""
    async with asyncio.timeout(90):
        peers = await asyncio.gather(*(greet(node, CONNECT) for _ in range(200)))
        await asyncio.gather(*(peer.subscribe("/topic/a") for peer in peers))
        await ann.ask("SEND", b"x", destination="/topic/a")
        assert await asyncio.gather(*(peer.bodies(1) for peer in peers)) == [[b"x"]] * 200
        await asyncio.gather(*(peer.close() for peer in peers))
        await until(lambda: node.door.connections == 1)
        await until_left(node, 1)
    assert await node.broker.subscriptions.list() == []


async def test_connections_that_say_nothing(node: Node) -> None:
    """Connections that end before they said anything, or in the middle of a frame, do no harm."""
    for beginning in (b"", b"CONN", b"CONNECT\nlogin:me\n\n\0SEND\ntopic:a\n\nha", CONNECT + b"SEND\ndesti"):
        async with stranger(node) as peer:
            peer.write(beginning)
    await until_left(node, 0)
    assert node.broker.pressure.held == 0
    async with connected(node) as peer:
        await peer.ask("SEND", b"x", destination="/topic/a")


async def test_a_client_that_closes_its_side_first(node: Node) -> None:
    """Who says everything at once and closes its side of the connection, as a line in a shell does, is still
    answered; then the connection ends."""
    async with connected(node) as peer:
        peer.send("SUBSCRIBE", id="0", destination="/queue/jobs", receipt="1")
        peer.send("SEND", b"x", destination="/queue/jobs", receipt="2")
        peer.send("SEND", b"y", destination="/topic/news", receipt="3")
        peer.send("DISCONNECT", receipt="4")
        peer.end()
        receipts: list[str] = []
        while len(receipts) < 4:
            frame = await peer.frame()
            if frame.command == "RECEIPT":
                receipts.append(frame.headers["receipt-id"])
        assert receipts == ["1", "2", "3", "4"]
        await peer.closed()
    async with connected(node) as peer:
        peer.send("SEND", b"z", destination="/topic/news", receipt="1")
        peer.end()
        assert (await peer.expect("RECEIPT")).headers["receipt-id"] == "1"
        await peer.closed()
    async with stranger(node) as peer:
        peer.write(SLIM_CONNECT + b"SUBSCRIBE\ndestination:a\n\n\0DISCONNECT\n\n\0")
        peer.end()
        assert await peer.read(22) == b"CONNECTED\n\n\0RECEIPT\n\n\0"
        await peer.closed()


async def test_a_reset_in_the_middle(node: Node, ann: Peer) -> None:
    """A consumer whose connection is reset while messages are on their way loses none of them."""
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    narrow.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(narrow, ("127.0.0.1", node.port))
    await loop.sock_sendall(narrow, CONNECT + b"SUBSCRIBE\nid:0\ndestination:/queue/a\nack:client\n\n\0")
    for n in range(20):
        await ann.ask("SEND", b"%d" % n, destination="/queue/a")
    while await leases(node) < 20:
        pass
    narrow.close()
    await ann.subscribe("/queue/a", ack="client")
    messages = await ann.messages(20)
    assert sorted(int(message.body) for message in messages) == list(range(20))


async def test_one_slow_subscriber(node: Node, ann: Peer) -> None:
    """A subscriber that does not read holds up nobody else, and little is kept for it."""
    async with AsyncExitStack() as stack:
        slow = await stack.enter_async_context(connected(node))
        quick = [await stack.enter_async_context(connected(node)) for _ in range(3)]
        for peer in (slow, *quick):
            await peer.subscribe("/topic/a")
        slow._reader._transport.pause_reading()  # type: ignore[attr-defined]  # noqa: SLF001
        count, size = 60, 500_000
        for n in range(count):
            await ann.ask("SEND", b"%3d" % n + b"x" * size, destination="/topic/a")
            for peer in quick:
                assert (await peer.bodies(1))[0].startswith(b"%3d" % n)
        held = [w._transport.get_write_buffer_size() for w in node.door.wires]  # noqa: SLF001
        assert max(held) < 10 * size
        slow._reader._transport.resume_reading()  # type: ignore[attr-defined]  # noqa: SLF001
        assert [int(body[:3]) for body in await slow.bodies(count)] == list(range(count))


async def test_one_slow_consumer(node: Node, ann: Peer, bob: Peer) -> None:
    """A consumer that does not read gets no more than it has room for: the others get the rest."""
    slow = await greet(node, CONNECT)
    await slow.subscribe("/queue/a")
    slow._reader._transport.pause_reading()  # type: ignore[attr-defined]  # noqa: SLF001
    for n in range(40):
        await ann.ask("SEND", b"%2d" % n + b"x" * 500_000, destination="/queue/a")
    await bob.subscribe("/queue/a")
    await ann.ask("SEND", b"last", destination="/queue/a")
    seen: list[bytes] = []
    while not seen or seen[-1] != b"last":
        seen += [body[:4] for body in await bob.bodies(1)]
    assert len(seen) > 10
    await slow.close()


async def test_who_sends_without_reading(node: Node) -> None:
    """A client that sends and sends, and does not read its receipts, is stopped; the node goes on."""
    rude = await greet(node, CONNECT)
    rude._reader._transport.pause_reading()  # type: ignore[attr-defined]  # noqa: SLF001
    receipt = b"SEND\ndestination:/topic/a\nreceipt:" + b"r" * 10_000 + b"\n\nx\0"
    writer = rude._writer  # noqa: SLF001
    sent = 0
    while writer.transport.get_write_buffer_size() < 1 << 20:
        rude.write(receipt * 20)
        sent += 1
        await asyncio.sleep(0)
        assert sent < 100_000
    async with connected(node) as polite:
        await polite.ask("SEND", b"x", destination="/topic/b")
    writer.transport.abort()


async def test_a_store_that_is_away(data_dir: Path) -> None:
    """A consumer that is lost while the store is away holds its messages no longer than until the store is
    back."""
    server = await asyncio.to_thread(embedded.start, data_dir)
    async with running_node(server.dsn, patience=0.5) as node:
        async with connected(node) as doomed:
            await doomed.subscribe("/queue/a", ack="client")
            await doomed.ask("SEND", b"x", destination="/queue/a")
            await doomed.messages(1)
            await asyncio.to_thread(embedded.stop, data_dir)
        await until(lambda: node.door.connections == 0)
        async with connected(node) as hopeful:
            assert await hopeful.refused("SEND", b"y", destination="/queue/a")
        async with connected(node) as hopeful:
            assert await hopeful.refused("SEND", b"y", destination="/queue/new")
        slim = await greet(node, SLIM_CONNECT)
        slim.write(b"SEND\ntopic:a\n\nx\n\n\0SUBSCRIBE\ndestination:a\n\n\0")
        expected = b"ERROR\nmessage:Failed to add message\n\n\0ERROR\nmessage:Failed to subscribe\n\n\0"
        assert await slim.read(len(expected)) == expected
        await slim.close()
        await asyncio.to_thread(embedded.start, data_dir)
        node.broker.queues._room._leasing._lane._patience = SECONDS  # noqa: SLF001  (until it is connected)
        async with connected(node) as peer:
            await peer.subscribe("/queue/a")
            (message,) = await peer.messages(1)
            assert (message.body, message.headers["redelivered"]) == (b"x", "true")


@pytest.mark.parametrize("durable", [{}, {"durable": "sue"}])
async def test_subscribers_lost_while_the_store_may_only_be_read(
    dsn: str, connection: Connection, caplog: pytest.LogCaptureFixture, durable: dict[str, str]
) -> None:
    """What fails behind a subscriber that has gone is no exception that is never retrieved."""
    async with running_node(dsn, patience=0.2) as node:
        async with connected(node) as doomed:
            await doomed.subscribe("/topic/news", ack="client", **durable)
            await doomed.ask("SEND", b"x", destination="/topic/news")
            await doomed.messages(1)
            database = await connection.fetchval("select current_database()")
            await connection.execute(f"alter database {database} set default_transaction_read_only = on")
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
        await until(lambda: node.door.connections == 0)
    assert "never retrieved" not in caplog.text
