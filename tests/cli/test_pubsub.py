"""`nuncius pubsub`: single commands for scripts, and a conversation with a person."""

import base64
import contextlib
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.commands import NUNCIUS, node
from cli.conftest import Commands, Done
from doors.zeromq.peer import node_in_a_thread
from nuncius.cli.errors import FAILED, INTERRUPTED, NO_CONNECTION, NOTHING, USAGE
from nuncius.client.zeromq import PubSubClient


class PubSub:
    """Runs the command for a client, with its state in a directory of the test."""

    def __init__(self, port: int, directory: Path) -> None:
        self.url = f"tcp://127.0.0.1:{port}"
        self.directory = directory
        self.options = [f"--url={self.url}", f"--state={directory}"]
        self._run = Commands("")

    def __call__(self, client: str, *words: str, stdin: str | bytes = "") -> Done:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        return self._run("pubsub", client, *self.options, *words, stdin=data)

    def well(self, client: str, *words: str, stdin: str = "") -> list[str]:
        done = self(client, *words, stdin=stdin)
        assert (done.code, done.err) == (0, "")
        return done.lines


@pytest.fixture
def pubsub(dsn: str, tmp_path: Path) -> Iterator[PubSub]:
    with node_in_a_thread(dsn) as port:
        yield PubSub(port, tmp_path)


def test_single_commands(pubsub: PubSub) -> None:
    """Subscribe, put, get and unsubscribe, a command each."""
    assert pubsub.well("ann", "subscribe", "news") == ["subscribed; the latest message is -1"]
    assert pubsub.well("bob", "put", "news", "two", "words") == ["stored, for 1 subscriber"]
    assert pubsub.well("bob", "put", "other", "text") == ["stored, for 0 subscribers"]
    assert pubsub.well("ann", "topics") == ["TOPIC  LAST MESSAGE", "news             -1"]
    assert pubsub.well("ann", "get", "news") == ["two words"]
    nothing = pubsub("ann", "get", "news", "0.01")
    assert (nothing.code, nothing.out, nothing.err) == (NOTHING, "", "nothing new\n")
    assert pubsub.well("ann", "unsubscribe", "news") == ["unsubscribed"]
    assert pubsub.well("ann", "topics") == ["not subscribed to anything"]


def test_forms(pubsub: PubSub) -> None:
    """Messages come as text that is safe for a terminal, as JSON, or as they are."""
    pubsub.well("ann", "subscribe", "news")
    pubsub.well("bob", "put", "news", "a\x1b[31m")
    with PubSubClient("eve", pubsub.url, directory=pubsub.directory) as eve:
        eve.put("news", b"\xff")
        eve.put("news", "text")
        eve.put("news", b"\xff raw")
    assert pubsub.well("ann", "get", "news") == ["a\\x1b[31m"]
    encoded = base64.b64encode(b"\xff").decode()
    assert pubsub.well("ann", "get", "news", "-o", "json") == [
        f'{{"topic":"news","id":1,"body_base64":"{encoded}"}}'
    ]
    assert pubsub.well("ann", "-o", "json", "get", "news") == ['{"topic":"news","id":2,"body":"text"}']
    assert pubsub("ann", "get", "news", "-o", "raw").raw == b"\xff raw\n"


def test_mistakes(pubsub: PubSub) -> None:
    """A mistake is one line and an exit code that says what kind it was."""
    for words, code, said in (
        (("nonsense",), USAGE, "there is no command 'nonsense'"),
        (("subscribe",), USAGE, "say: subscribe TOPIC"),
        (("put", "news"), USAGE, "say: put TOPIC TEXT"),
        (("get", "news", "soon"), USAGE, "'soon' is no number of seconds"),
        (("get", "news"), FAILED, "'ann' is not subscribed to 'news'"),
        (("unsubscribe", "news"), FAILED, "'ann' is not subscribed to 'news'"),
    ):
        done = pubsub("ann", *words)
        assert done.code == code
        assert said in done.err
        assert done.err.count("\n") == 1
    gone = pubsub("ann", "--url=tcp://127.0.0.1:1", "--tries=1", "--timeout=0.01", "put", "x", "y")
    assert gone.code == NO_CONNECTION
    with PubSubClient("ann", directory=pubsub.directory):
        assert "another process uses" in pubsub("ann", "topics").err


def test_a_script(pubsub: PubSub) -> None:
    """Commands from standard input are carried out line by line; mistakes do not stop it and are not
    forgotten."""
    script = "subscribe news\n\nput news  two words \nget news\nget news\nhelp\nexit\nget news\n"
    done = pubsub("ann", stdin=script)
    assert done.lines[:3] == [
        "subscribed; the latest message is -1",
        "stored, for 1 subscriber",
        "two words ",
    ]
    assert done.lines[3].startswith("subscribe TOPIC")
    assert (done.err, done.code) == ("nothing new\n", NOTHING)
    failed = pubsub("ann", stdin="get nowhere\nput news text\nnonsense\n")
    assert failed.lines == ["stored, for 1 subscriber"]
    assert failed.code == USAGE
    assert len(failed.err.splitlines()) == 2


def test_an_interrupted_script(pubsub: PubSub) -> None:
    """Ctrl-C ends a script; what follows in it is not carried out."""
    process = subprocess.Popen(
        [*NUNCIUS, "pubsub", "ann", *pubsub.options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("subscribe news\nget news 300\nput news text\n")
        process.stdin.close()
        assert process.stdout.readline().startswith("subscribed")
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""
    assert process.returncode == INTERRUPTED
    assert pubsub("ann", "get", "news").code == NOTHING


def test_the_history_of_a_script(pubsub: PubSub) -> None:
    """`history` lists the commands so far."""
    assert pubsub.well("ann", stdin=" put news a\x1b\n\nhistory\n")[1:] == ["put news a\\x1b", "history"]


def test_a_script_that_is_no_text(pubsub: PubSub) -> None:
    """Bytes that are no text are put as they are; as a name they are a mistake, and the next line is read."""
    done = pubsub("ann", stdin=b"subscribe news\nput news caf\xe9\nsubscribe caf\xe9\nput news text\n")
    assert done.lines[1:] == ["stored, for 1 subscriber"] * 2
    assert done.err == "the name of a topic is valid Unicode\n"
    assert pubsub("ann", "get", "news", "-o", "raw").raw == b"caf\xe9\n"


def converse(pubsub: PubSub, *typed: bytes) -> tuple[int, str]:
    """Types at a terminal, each line when a prompt is there."""
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [*NUNCIUS, "pubsub", "ann", *pubsub.options],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        env=os.environ | {"TERM": "dumb"},
    )
    os.close(terminal)
    seen = b""
    try:
        for keys in (*typed, b""):
            while not seen.endswith(b"\n> "):  # a line that is drawn anew has a prompt, too
                seen += os.read(main, 1024)
            if keys:
                os.write(main, keys)
                seen += os.read(main, 1024)  # from here on the prompt at the end is another one
        os.write(main, b"\x04")
        with contextlib.suppress(OSError):  # that is how a terminal ends
            while said := os.read(main, 1024):
                seen += said
        code = process.wait(timeout=300)
    finally:
        process.kill()
        process.wait()
        os.close(main)
    return code, seen.decode()


def test_a_conversation(pubsub: PubSub) -> None:
    """At a terminal there is a prompt, help, and a history that lasts; mistakes do not end it."""
    code, seen = converse(pubsub, b"subscribe news\n", b"put news hello\n", b"oops\n", b"get news\n")
    assert code == 0
    assert "help lists the commands." in seen
    assert "no command 'oops'" in seen
    assert "\nhello\r\n" in seen
    assert seen.endswith("\n> \r\n")  # whoever comes after begins a line
    up = b"\x10"  # to the line before, and so into the first conversation
    code, seen = converse(pubsub, b"put news again\n", up + up + b"\n", b"history\n")
    assert code == 0
    assert "\nagain\r\n" in seen
    assert "\noops\r\nget news\r\nput news again\r\nget news\r\nhistory\r\n" in seen


def test_several_workers(dsn: str, tmp_path: Path) -> None:
    """All workers of a node listen on its ZeroMQ port, and it does not matter which one a client reaches."""
    with node("--store", dsn, "--workers=2", "--zeromq-port=0") as started, contextlib.ExitStack() as stack:
        url = f"tcp://127.0.0.1:{started.ready['ports']['zeromq']}"
        clients = [
            stack.enter_context(PubSubClient(f"client {n}", url, directory=tmp_path)) for n in range(8)
        ]
        for client in clients:
            client.subscribe("news")
        for n, client in enumerate(clients):
            assert client.put("news", f"{n}") == len(clients)
        for client in clients:
            texts = [message.text for _ in clients if (message := client.get("news", wait=10))]
            assert texts == [f"{n}" for n in range(len(clients))]


def test_exit(pubsub: PubSub) -> None:
    """`exit` and `quit` leave."""
    for word in ("exit", "quit"):
        assert pubsub.well("ann", stdin=f"{word}\nnonsense\n") == []
