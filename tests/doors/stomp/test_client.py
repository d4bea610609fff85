"""`nuncius stomp-client`, the report's test client: against our door, and against servers that do it
wrong."""

import asyncio
import re
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest

from cli.commands import nuncius
from doors.stomp.peer import Node, stranger
from nuncius.cli.commands.programs.stomp_client import Trial, TrialFailed

CONNECTED = b"CONNECTED\n\n\0"
BAD_DESTINATION = b"not a valid destination"
REFUSED = b"ERROR\nmessage:Failed to add message\n\n\0"


async def test_all_is_well(node: Node) -> None:
    """Every message came, each topic in order."""
    verdict = await Trial("hmuster", 33, 10).run("127.0.0.1", node.port)
    assert re.fullmatch(r"all 33 messages came, each topic in order, in \d+\.\d\d s", verdict)


@pytest.mark.parametrize("count", [0, 1, 2000])
async def test_other_counts(node: Node, count: int) -> None:
    """Any number of messages will do."""
    assert f"all {count} messages" in await Trial("hmuster", count, 20).run("127.0.0.1", node.port)


async def test_several_at_once(node: Node) -> None:
    """Several test clients see each other's messages; each finds its own among them."""
    trials = [Trial(f"client {n}", 50, 20) for n in range(4)]
    for verdict in await asyncio.gather(*(trial.run("127.0.0.1", node.port) for trial in trials)):
        assert verdict.startswith("all 50 messages came")


async def test_others_are_counted(node: Node) -> None:
    """Messages that somebody else sends are no fault."""

    async def disturb() -> None:
        async with stranger(node) as peer:
            peer.write(b"CONNECT\nlogin:me\n\n\0")
            await peer.read(len(CONNECTED))
            while True:
                peer.write(b"SEND\ntopic:news\n\nother\n\n\0")
                await asyncio.sleep(0)

    disturbing = asyncio.ensure_future(disturb())
    try:
        verdict = await Trial("hmuster", 500, 20).run("127.0.0.1", node.port)
    finally:
        disturbing.cancel()
        await asyncio.gather(disturbing, return_exceptions=True)
    assert re.search(r" s, and \d+ of others$", verdict)


@asynccontextmanager
async def server(answer: Callable[[bytes], bytes | None]) -> AsyncIterator[int]:
    """Answers each frame with some bytes, or with the end of the connection. The SEND by which the client
    asks whether its subscriptions stand is called ASK."""
    serving: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        try:
            while True:
                frame = await reader.readuntil(b"\0")
                said = answer(b"ASK" if BAD_DESTINATION in frame else frame.partition(b"\n")[0])
                if said is None:
                    break
                writer.write(said)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        await asyncio.gather(*(task for task in serving if task is not None))


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({b"CONNECT": b"HELLO\n\n\0"}, "CONNECT was answered with b'HELLO"),
        ({b"CONNECT": None}, "closed the connection; waiting for an answer to CONNECT"),
        ({b"CONNECT": b"x" * 100}, "nothing came within 0.2 s; waiting for an answer to CONNECT"),
        ({b"CONNECT": CONNECTED, b"SUBSCRIBE": b"NONSENSE\n\n\0"}, "the server sent b'NONSENSE"),
        (
            {b"CONNECT": CONNECTED, b"ASK": REFUSED, b"DISCONNECT": b"RECEIPT\n\n\0"},
            "waiting for 'price: 22.0' of news and 'price: 22.1' of stocks (3 of 3 are missing)",
        ),
        (
            {b"CONNECT": CONNECTED, b"ASK": REFUSED, b"DISCONNECT": b"BYE\n\n\0"},
            "DISCONNECT was answered with",
        ),
    ],
)
async def test_servers_that_do_it_wrong(answers: dict[bytes, bytes | None], said: str) -> None:
    """The verdict says what was wrong."""
    async with server(lambda command: answers.get(command, b"")) as port:
        with pytest.raises(TrialFailed) as caught:
            await Trial("hmuster", 3, 0.2).run("127.0.0.1", port)
    assert said in str(caught.value)


@contextmanager
def deaf_server() -> Iterator[int]:
    """Accepts a connection and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=lambda: listening.accept()[0].close())  # noqa: PLW0108  (it accepts)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def test_the_exit_code() -> None:
    """1 if the server did it wrong, 4 if there is none; the reason is one line on stderr."""
    with deaf_server() as port:
        done = nuncius("stomp-client", "127.0.0.1", str(port), "me", "3")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("nuncius: the server closed the connection")
    done = nuncius("stomp-client", "127.0.0.1", str(port))
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("nuncius: cannot connect")
    assert done.stderr.count("\n") == 1
