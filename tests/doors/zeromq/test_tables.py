"""Every row of the report's tables, against the node, in both forms."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import zmq

from doors.zeromq.peer import Node, Peer, connected

Ask = Callable[[str], Awaitable[str]]


@pytest.fixture(params=["REQ text", "REQ fields", "DEALER text", "DEALER fields", "DEALER like REQ"])
async def ask(request: pytest.FixtureRequest, node: Node) -> AsyncIterator[Ask]:
    """Asks in one of the forms; question and answer are written as text."""
    kind, form = request.param.split(" ", 1)
    envelope = [b""] if form == "like REQ" else []
    async with connected(node, getattr(zmq, kind)) as peer:

        async def asking(text: str) -> str:
            parts = text.encode().split(b" ", 4 if text.startswith("p") else -1)
            await peer.send(*envelope, *(parts if form == "fields" else [text.encode()]))
            answer = await peer.receive()
            assert answer[: len(envelope)] == envelope
            answer = answer[len(envelope) :]
            if form != "fields":
                assert len(answer) == 1
            return b" ".join(answer).decode()

        yield asking


async def test_get(ask: Ask) -> None:
    """Acknowledge with the latest id and the text; an error with the latest id, or `ns`."""
    assert await ask("g ann news 0") == "e ns"
    assert await ask("s ann news") == "a -1"
    assert await ask("g ann news 0") == "e -1"
    await ask("p bob news 1 two words")
    await ask("p bob news 2 more")
    assert await ask("g ann news 0") == "a 1 two words"
    assert await ask("g ann news 1") == "a 1 more"
    assert await ask("g ann news 2") == "e 1"
    assert await ask("g ann news 99") == "e 1"
    assert await ask("g eve news 0") == "e ns"


async def test_put(ask: Ask) -> None:
    """Acknowledge with the number of subscribers; an error with the count that is registered."""
    assert await ask("p bob news 1 text") == "a 0"
    assert await ask("p bob news 1 text") == "e 1"
    assert await ask("p bob news 3 text") == "e 1"
    assert await ask("p bob news 0 text") == "e 1"
    await ask("s ann news")
    assert await ask("p bob news 2 text") == "a 1"
    await ask("s eve news")
    assert await ask("p bob news 3 text") == "a 2"
    await ask("u eve news")
    assert await ask("p bob news 4 text") == "a 1"
    assert await ask("p eve news 2 text") == "e 0"
    assert await ask(f"p eve news {'9' * 30} text") == "e 0"


async def test_subscribe(ask: Ask) -> None:
    """Acknowledge with the latest id; an error if subscribed already."""
    assert await ask("s ann news") == "a -1"
    assert await ask("s ann news") == "e as"
    await ask("p bob news 1 text")
    assert await ask("s eve news") == "a 0"
    assert await ask("s ann other") == "a -1"


async def test_unsubscribe(ask: Ask) -> None:
    """Acknowledge; an error if not subscribed."""
    assert await ask("u ann news") == "e ns"
    await ask("s ann news")
    assert await ask("u ann news") == "a"
    assert await ask("u ann news") == "e ns"


async def test_what_was_pending(ask: Ask) -> None:
    """Unsubscribing drops what was pending; subscribing again begins after the latest."""
    await ask("s ann news")
    await ask("p bob news 1 before")
    await ask("u ann news")
    await ask("p bob news 2 between")
    assert await ask("s ann news") == "a 1"
    await ask("p bob news 3 after")
    assert await ask("g ann news 2") == "a 2 after"


async def test_malformed(ask: Ask) -> None:
    """Anything else is `i`, and the next request is served."""
    for text in ("x", "g ann news", "p bob news 1", "p bob news x y", "s ann", "u", "g ann news -1"):
        assert await ask(text) == "i"
    assert await ask("s ann news") == "a -1"


async def test_names_and_sizes(ann: Peer) -> None:
    """Names that are not allowed, and texts that are too large, are `i` too."""
    long = "x" * 256
    assert await ann.ask(f"s {long} news") == "i"
    assert await ann.ask(f"s ann {long}") == "i"
    assert await ann.ask(f"g ann {long} 0") == "i"
    assert await ann.ask(f"g {long} news 0") == "i"
    assert await ann.ask(f"p {'x' * 249} news 1 text") == "i"
    assert await ann.ask(f"p {'x' * 248} news 1 text") == "a 0"
    assert await ann.ask("s ann ne\tws") == "i"
    assert await ann.ask("u ann ne\0ws") == "i"
    assert await ann.ask_fields("s", "ann ", "news") == [b"i"]
    assert await ann.ask("g ann news 0 wait=3601") == "i"


async def test_names_with_blanks(ann: Peer) -> None:
    """In the form with a frame a field a name may have blanks, and a body may be any bytes."""
    assert await ann.ask_fields("s", "ann lee", "big news") == [b"a", b"-1"]
    assert await ann.ask_fields("p", "bob ray", "big news", "1", b"\xff \0") == [b"a", b"1"]
    assert await ann.ask_fields("g", "ann lee", "big news", "0") == [b"a", b"0", b"\xff \0"]
    assert await ann.ask_fields("p", "bob ray", "big news", "2", b"") == [b"a", b"1"]
    assert await ann.ask_fields("g", "ann lee", "big news", "1") == [b"a", b"1", b""]


async def test_a_body_that_is_no_text(ann: Peer) -> None:
    """In the text form a body that is no text is shown as well as can be."""
    await ann.ask("s ann news")
    await ann.ask_fields("p", "bob", "news", "1", b"caf\xe9")
    assert await ann.ask("g ann news 0") == "a 0 caf\ufffd"


async def test_resuming(ann: Peer) -> None:
    """Who asks to resume is told the id that it confirmed last."""
    assert await ann.ask("s ann news resume") == "a -1"
    for count in range(1, 5):
        await ann.ask(f"p bob news {count} text")
    await ann.ask("g ann news 2")
    assert await ann.ask("s ann news resume") == "e as 1"
    assert await ann.ask("s ann news") == "e as"
