"""`nuncius trib` and `nuncius kv`: what they print, and how they end."""

import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from cli.conftest import Commands, Done
from cluster.tribbler_ring import ring_in_a_thread
from nuncius.doors.tribbler.rpc_codec import CONNECTED

Run = Callable[..., Done]
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"


@pytest.fixture
def trib(dsn: str) -> Iterator[Run]:
    """Commands against a node of their own; the last argument of each says where it is."""
    commands = Commands("")
    with ring_in_a_thread([dsn]) as ring:
        yield lambda *arguments: commands(*arguments, "--node", ring.nodes[0])


def well(done: Done) -> list[str]:
    assert (done.code, done.err) == (0, "")
    return done.lines


def failed(done: Done, words: str) -> None:
    assert (done.code, done.out) == (1, "")
    assert done.err == f"nuncius: {words}\n"


def test_users(trib: Run) -> None:
    """Users are made once."""
    assert well(trib("trib", "uc", "dga")) == ["user dga is made"]
    failed(trib("trib", "uc", "dga"), "there is a user 'dga' already")


def test_following(trib: Run) -> None:
    """Users follow each other, and every mistake has its sentence."""
    for user in ("dga", "bryant"):
        well(trib("trib", "uc", user))
    assert well(trib("trib", "sl", "dga")) == ["dga follows no one"]
    assert well(trib("trib", "sa", "dga", "bryant")) == ["dga follows bryant"]
    failed(trib("trib", "sa", "dga", "bryant"), "dga follows bryant already")
    failed(trib("trib", "sa", "dga", "x"), "there is no user 'x'; make it with: nuncius trib uc")
    failed(trib("trib", "sa", "x", "dga"), "there is no user 'x'; make it with: nuncius trib uc")
    assert well(trib("trib", "sl", "dga")) == ["bryant"]
    assert json.loads(trib("trib", "sl", "dga", "-o", "json").out) == ["bryant"]
    assert well(trib("trib", "sr", "dga", "bryant")) == ["dga does not follow bryant any more"]
    failed(trib("trib", "sr", "dga", "bryant"), "dga does not follow bryant")
    failed(trib("trib", "sl", "x"), "there is no user 'x'; make it with: nuncius trib uc")


def test_tribbles(trib: Run) -> None:
    """Tribbles are shown newest first, one a line; nothing in them acts on the terminal."""
    for user in ("dga", "o'hallaron"):
        well(trib("trib", "uc", user))
    assert well(trib("trib", "tl", "dga")) == ["dga has not said anything"]
    assert well(trib("trib", "ts", "dga")) == ["no user whom dga follows has said anything"]
    assert well(trib("trib", "tp", "dga", "first", "post!")) == ["posted"]
    assert well(trib("trib", "tp", "o'hallaron", "two\nlines \x1b[1m")) == ["posted"]
    (line,) = well(trib("trib", "tl", "dga"))
    assert re.fullmatch(rf"{TIME}  dga  first post!", line)
    for target in ("dga", "o'hallaron"):
        well(trib("trib", "sa", "dga", target))
    newer, older = well(trib("trib", "ts", "dga"))
    assert re.fullmatch(rf"{TIME}  o'hallaron  two\\nlines \\x1b\[1m", newer)
    assert re.fullmatch(rf"{TIME}  dga         first post!", older)
    document = json.loads(trib("trib", "ts", "dga", "-o", "json").out)
    assert [each["contents"] for each in document] == ["two\nlines \x1b[1m", "first post!"]
    assert document[0]["user"] == "o'hallaron"
    failed(trib("trib", "tp", "x", "hello"), "there is no user 'x'; make it with: nuncius trib uc")


def test_keys(trib: Run) -> None:
    """Values and lists of the store below, as they are."""
    assert well(trib("kv", "p", "dga:x", "some value")) == ["stored"]
    assert well(trib("kv", "g", "dga:x")) == ["some value"]
    assert json.loads(trib("kv", "g", "dga:x", "-o", "json").out) == "some value"
    failed(trib("kv", "g", "dga:y"), "there is no key 'dga:y'")
    assert well(trib("kv", "la", "dga:list", "a")) == ["added"]
    assert well(trib("kv", "la", "dga:list", "b")) == ["added"]
    failed(trib("kv", "la", "dga:list", "a"), "there is an item 'a' in 'dga:list' already")
    assert well(trib("kv", "lg", "dga:list")) == ["a", "b"]
    assert json.loads(trib("kv", "lg", "dga:list", "-o", "json").out) == ["a", "b"]
    assert well(trib("kv", "lr", "dga:list", "a")) == ["removed"]
    failed(trib("kv", "lr", "dga:list", "a"), "there is no item 'a' in 'dga:list'")
    failed(trib("kv", "lr", "dga:none", "a"), "there is no key 'dga:none'")
    well(trib("kv", "lr", "dga:list", "b"))
    assert well(trib("kv", "lg", "dga:list")) == ["the list is empty"]
    long = trib("kv", "p", "x" * 2000, "value")
    assert (long.code, "could not be stored" in long.err) == (1, True)


def test_bytes_that_are_no_text(trib: Run) -> None:
    """They are shown as escapes, and replaced in JSON, which cannot carry them."""
    strange, replaced = os.fsdecode(b"\xffx"), "\ufffdx"
    assert well(trib("trib", "uc", strange)) == ["user \\udcffx is made"]
    well(trib("trib", "sa", strange, strange))
    well(trib("trib", "tp", strange, strange))
    assert well(trib("trib", "sl", strange)) == ["\\udcffx"]
    assert json.loads(trib("trib", "sl", strange, "-o", "json").out) == [replaced]
    (tribble,) = json.loads(trib("trib", "ts", strange, "-o", "json").out)
    assert (tribble["user"], tribble["contents"]) == (replaced, replaced)
    well(trib("kv", "p", strange, strange))
    well(trib("kv", "la", strange, strange))
    assert json.loads(trib("kv", "g", strange, "-o", "json").out) == replaced
    assert json.loads(trib("kv", "lg", strange, "-o", "json").out) == [replaced]


def test_nobody_there() -> None:
    """Without a node the command says what to start."""
    done = Commands("")("trib", "uc", "dga", "--node", "127.0.0.1:1")
    assert done.code == 4
    assert done.err.startswith("nuncius: 127.0.0.1:1 cannot be reached")
    assert done.err.endswith("start a node with: nuncius tribbler\n")
    assert Commands("")("kv", "g", "x", "--node", "nowhere").code == 4


def test_silence(trib: Run) -> None:
    """A node that refuses, and one that does not answer, are told apart."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        thread = threading.Thread(target=_greet, args=(mute,))
        thread.start()
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        done = Commands("")("kv", "g", "x", "--timeout", "0.1", "--node", address)
        thread.join()
    assert done.code == 3
    assert "has not answered for 0.1 seconds" in done.err
    too_long = trib("trib", "uc", "x" * 2000)
    assert too_long.code == 1
    assert too_long.err.startswith("nuncius: the node says: ")


def _greet(server: socket.socket) -> None:
    """Says hello to one client, and then nothing more until it is gone."""
    connection, _ = server.accept()
    with connection:
        connection.sendall(CONNECTED)
        while connection.recv(1000):
            pass
