"""`nuncius top` and `nuncius status`: what a node does at this moment."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.commands import NUNCIUS, Node, node, nuncius
from nuncius.cli.commands.top_screen import lost, screen
from nuncius.cli.http import NoHttpAnswer, get
from nuncius.client import Client

SECONDS = 60.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with something in it."""
    directory = tmp_path_factory.mktemp("top", numbered=True)
    with node("--data-dir", str(directory / "data"), "--http-port=0") as started:
        with Client(started.url, name="watcher") as client:
            client.create_queue("q[bold]")
            client.put("q[bold]", "x")
            client.publish("t", "x")
            client.subscribe("t", "s", start="earliest").close()
        yield started
        started.stop()


def http(running: Node) -> str:
    return f"http://127.0.0.1:{running.ready['ports']['http']}"


def test_once(running: Node) -> None:
    """One screen: doors with rates, procedures, queues, lags; names are text, never markup."""
    done = nuncius("top", "--once", "--http", http(running))
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    for words in ("messages a second", "native", "publish", "q[bold]", "t · s", "All is well."):
        assert words in done.stdout


def test_json(running: Node) -> None:
    """The same for programs."""
    done = nuncius("top", "-o", "json", "--http", http(running))
    document = json.loads(done.stdout)
    assert document["stats"]["messages"]["published"]["total"] == 1
    assert document["overview"]["figures"]["messages"] == 1


@pytest.mark.parametrize("end", ["q", "Ctrl-C"])
def test_live(running: Node, end: str) -> None:
    """On a terminal the screen is drawn again and again, until q or Ctrl-C; other keys do nothing."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*NUNCIUS, "top", "--every", "0.2", "--http", http(running)],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
    )
    os.close(theirs)
    try:
        seen, deadline = b"", time.monotonic() + SECONDS
        while seen.count(b"together") < 3:
            assert time.monotonic() < deadline, seen
            if select.select([ours], [], [], 0.1)[0]:
                seen += os.read(ours, 1 << 16)
        if end == "q":
            os.write(ours, b"xq")
        else:
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        os.close(ours)
    assert (process.returncode, said) == (0, b"")


def test_nobody_there() -> None:
    """Without a node, or at something else, one line says so."""
    done = nuncius("top", "--http", "http://127.0.0.1:1")
    assert done.returncode == 4
    assert "no node answers" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "is no address" in nuncius("top", "--http", "ftp://x").stderr


def test_answers_that_are_none(running: Node) -> None:
    """What is no JSON, or an error, is not taken for facts."""
    with pytest.raises(NoHttpAnswer, match="status 404"):
        get(http(running), "/v1/nothing")
    with pytest.raises(NoHttpAnswer, match="no node of ours"):
        get(http(running), "/livez")


def test_status_counts(running: Node) -> None:
    """Status has connections by door and messages by kind."""
    done = nuncius("status", "--url", running.url)
    shown = dict(line.split(None, 1) for line in done.stdout.splitlines() if " " in line)
    assert shown["connections"] == "native 1"
    assert "published 1, put 1" in shown["messages"]
    document = json.loads(nuncius("status", "--url", running.url, "-o", "json").stdout)
    assert document["node"]["messages"]["put"] == 1


def test_alarms_and_a_lost_node_are_shown() -> None:
    """What is wrong stands above the tables, the worst in red; so does why there is nothing to show. Workers
    have a line each, and who does not answer is named."""
    from rich.console import Console

    amount = {"total": 1, "rate": 123.4}
    stats = {
        "version": "1",
        "started_at": "2026-01-01T00:00:00+00:00",
        "processes": [
            {"worker": number, "pid": 70 + number, "connections": number, "messages": {"put": amount}}
            for number in (1, 2)
        ],
        "missing": [3],
        "messages": {"put": amount},
        "doors": {"stomp": {"connections": 2, "messages": {"put": amount}}},
        "queues": [{"name": "busy", "put": 5.0, "taken": 5.0}],
        "procedures": [
            {"name": "put", "batches": 2, "rows": 4, "p50_ms": None, "p95_ms": None, "p99_ms": None}
        ],
    }
    figures = dict.fromkeys(
        (
            "queues",
            "messages",
            "topics",
            "entries",
            "subscriptions",
            "clients",
            "nodes",
            "nodes_alive",
            "bytes",
        ),
        1,
    )
    alarms = [{"level": "fail", "text": "fsync is off.", "remedy": "Turn it on."}]
    overview = {"figures": figures, "alarms": alarms, "queues": [], "subscriptions": []}
    console = Console(width=100, record=True, file=Path(os.devnull).open("w"))  # noqa: SIM115 - rich's to keep
    console.print(screen({"stats": stats, "overview": overview}, "http://x"))
    console.print(lost("gone"))
    text = console.export_text()
    console.file.close()
    shown = ("2 processes", "worker 3 does not answer", "worker 2, 72")
    for words in (*shown, "fsync is off. Turn it on.", "busy", "123", "gone"):
        assert words in text
    assert text.index("fsync") < text.index("messages a second")
