"""`nuncius up` says when it is ready, ends cleanly, and says in one line what is wrong."""

import asyncio
import http.client
import json
import os
import pty
import re
import signal
import socket
import stat
import subprocess
from pathlib import Path

import asyncpg
import pytest

from cli.commands import CLOSED, NUNCIUS, Node, node, nuncius
from nuncius.client import AsyncClient, Client, NunciusError
from nuncius.store.server import embedded

MESSAGES = 3000


async def bodies(dsn: str, topic: str) -> list[int]:
    """What is stored in a topic of numbers, read past all nodes."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            "select e.body from nuncius.entries e join nuncius.partitions p using (partition_id)"
            " join nuncius.topics t using (topic_id) where topic_name = $1 order by e.entry_offset",
            topic,
        )
    finally:
        await connection.close()
    return [int(row["body"]) for row in rows]


def test_ready_file(dsn: str, tmp_path: Path) -> None:
    """The ready file tells process, store and ports, is for its owner only, and goes with the node."""
    file = tmp_path / "ready.json"
    file.write_text("left by a node that was killed")
    with node("--store", dsn, "--ready-file", str(file)) as started:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text().strip()
        assert started.ready == {
            "pid": started.process.pid,
            "store": dsn,
            "endpoints": {
                "telesto": {"host": "127.0.0.1", "port": started.port},
                "stomp": None,
                "zeromq": None,
                "http": None,
                "tribbler": None,
            },
            "ports": {
                "telesto": started.port,
                "stomp": None,
                "zeromq": None,
                "http": None,
                "tribbler": None,
            },
        }
        with Client(started.url) as client:
            assert client.publish("news", "hello").offset == 0
        assert started.stop() == (0, "")
        assert not file.exists()


def test_the_ready_file_is_what_the_holder_of_a_leash_reads(dsn: str, tmp_path: Path) -> None:
    """The ready file has the same content as the line on stdout."""
    file = tmp_path / "ready.json"
    with node("--store", dsn, "--ready-file", str(file)) as started:
        assert json.loads(file.read_text()) == started.ready


def test_a_closed_door(dsn: str) -> None:
    """A door with the port `off` is not opened."""
    with node("--store", dsn, "--telesto-port=off") as started:
        assert set(started.ready["ports"].values()) == {None}
        assert started.stop(signal.SIGINT) == (0, "")


def test_a_leash(dsn: str) -> None:
    """A node on a leash stops cleanly when its stdin ends."""
    with node("--store", dsn) as started:
        assert started.process.stdin is not None
        started.process.stdin.close()
        started.process.stdin = None
        assert started.wait() == (0, "")


def test_banner(dsn: str) -> None:
    """On a terminal the node says where it is and how to stop it."""
    ours, theirs = pty.openpty()
    up = subprocess.Popen([*NUNCIUS, "up", "--store", dsn, "--telesto-port=0", *CLOSED], stdout=theirs)
    os.close(theirs)
    with os.fdopen(ours, encoding="utf-8") as terminal:
        lines = []
        for line in terminal:
            lines.append(line.strip())
            if "Ctrl-C" in line:
                break
        up.send_signal(signal.SIGINT)
        assert up.wait(30) == 0
    assert re.fullmatch(r"Nuncius [\d.]+ is ready\.", lines[0])
    assert re.fullmatch(r"telesto +nuncius://127\.0\.0\.1:\d+", lines[1])


async def test_a_stopped_node_has_answered_what_it_accepted(dsn: str) -> None:
    """After SIGTERM in the middle of a burst, every receipt is stored and every other publish failed."""
    with node("--store", dsn) as started:
        client = await AsyncClient.connect(started.url, timeout=3)
        receipts = [client.publish("burst", str(number)) for number in range(MESSAGES)]
        more = [client.publish("burst", str(number)) for number in range(MESSAGES, 2 * MESSAGES)]
        await asyncio.wait([asyncio.ensure_future(receipts[0])])
        started.process.send_signal(signal.SIGTERM)
        outcomes = await asyncio.gather(*receipts, *more, return_exceptions=True)
        assert await asyncio.to_thread(started.wait) == (0, "")
        await client.close()
    stored = await bodies(dsn, "burst")
    assert stored == list(range(len(stored)))
    for number, outcome in enumerate(outcomes):
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, NunciusError)
        else:
            assert number < len(stored)
            assert outcome.duplicate or outcome.offset == number


async def test_another_node_takes_over(dsn: str) -> None:
    """A burst in the middle of which one of two nodes is stopped is stored completely, each message once."""
    with node("--store", dsn) as first, node("--store", dsn) as second:
        client = await AsyncClient.connect(f"{first.url},127.0.0.1:{second.port}")
        burst = []
        for number in range(MESSAGES):
            burst.append(asyncio.ensure_future(client.publish("burst", str(number))))
            if number % 100 == 0:
                await asyncio.wait(burst[-1:])
            if number == MESSAGES // 2:
                first.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*burst)
        await client.close()
        assert await asyncio.to_thread(first.wait) == (0, "")
    assert await bodies(dsn, "burst") == list(range(MESSAGES))


async def test_a_second_signal_ends_the_node_at_once(dsn: str) -> None:
    """A node that waits for the store in order to answer ends at once at the second signal."""
    with node("--store", dsn) as started:
        client = await AsyncClient.connect(started.url)
        await client.publish("news", "first")
        connection = await asyncpg.connect(dsn)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("select nuncius.publish('news', 'uncommitted'::bytea)")
        waiting = asyncio.ensure_future(client.publish("news", "waits for that transaction"))
        await client.ping()
        started.process.send_signal(signal.SIGTERM)
        started.process.send_signal(signal.SIGINT)
        code, _ = await asyncio.to_thread(started.wait)
        assert code in {128 + signal.SIGTERM, 128 + signal.SIGINT}
        waiting.cancel()
        await transaction.rollback()
        await connection.close()
        await client.close()


def test_after_kill_the_next_node_attaches(data_dir: Path) -> None:
    """`kill -9` of a node leaves its PostgreSQL running, and the next node attaches to it and stops it."""
    with node("--data-dir", str(data_dir)) as killed:
        with Client(killed.url) as client:
            client.publish("news", "kept")
        killed.stop(signal.SIGKILL)
    server = embedded.running(data_dir)
    assert server is not None
    with node("--data-dir", str(data_dir)) as started:
        again = embedded.running(data_dir)
        assert again is not None
        assert again.pid == server.pid
        with Client(started.url) as client:
            assert [entry.text for entry in client.fetch("news")] == ["kept"]
        assert started.stop() == (0, "")
    assert embedded.running(data_dir) is None


def test_two_nodes_on_one_data_directory(data_dir: Path) -> None:
    """Two nodes share the embedded server; the first to leave lets it run, the last stops it."""
    with node("--data-dir", str(data_dir)) as first, node("--data-dir", str(data_dir)) as second:
        assert first.dsn == second.dsn
        with Client(first.url) as one, Client(second.url) as other:
            one.create_queue("jobs")
            one.put("jobs", "work")
            message = other.take("jobs", wait=10)
            assert message is not None
            assert message.text == "work"
        assert first.stop() == (0, "")
        assert embedded.running(data_dir) is not None
        with Client(second.url) as client:
            assert client.publish("news", "still here").offset == 0
        assert second.stop() == (0, "")
    assert embedded.running(data_dir) is None


def test_a_killed_server_is_started_again(data_dir: Path) -> None:
    """After `kill -9` of the embedded server the node starts it again, and clients only wait."""
    with node("--data-dir", str(data_dir)) as started, Client(started.url) as client:
        client.publish("news", "before")
        server = embedded.running(data_dir)
        assert server is not None
        os.kill(server.pid, signal.SIGKILL)
        client.publish("news", "after")
        assert [entry.text for entry in client.fetch("news")] == ["before", "after"]
        again = embedded.running(data_dir)
        assert again is not None
        assert again.pid != server.pid


def test_a_port_in_use(dsn: str, tmp_path: Path) -> None:
    """A port that is taken is named in one line, with the option to choose another."""
    file = tmp_path / "ready.json"
    file.write_text("stale")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = nuncius("up", "--store", dsn, "--telesto-port", str(port), *CLOSED, "--ready-file", str(file))
    assert done.returncode == 1
    assert done.stderr == (
        f"nuncius: port {port} on 127.0.0.1 is in use: end the program that uses it, or choose "
        "another with --telesto-port (0 is any free one)\n"
    )
    assert not file.exists()


def test_a_directory_that_is_not_ours(tmp_path: Path) -> None:
    """A directory with other files in it is refused and left alone."""
    (tmp_path / "thesis.tex").touch()
    done = nuncius("up", "--data-dir", str(tmp_path), "--telesto-port=0", *CLOSED)
    assert done.returncode == 1
    assert "is not empty and not a nuncius data directory" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", "cannot connect to the store"),
        ("nonsense", "invalid DSN"),
        ("postgresql://host.invalid/none", "cannot connect to the store"),
    ],
)
def test_a_store_that_is_not_there(store: str, words: str) -> None:
    """A database that cannot be reached is one line."""
    done = nuncius("up", "--store", store, "--telesto-port=0", *CLOSED)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


async def test_a_newer_database(dsn: str) -> None:
    """A database of a newer program is refused in one line that names both versions."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("insert into nuncius.migrations (version, name) values (99, 'x')")
    await connection.close()
    done = await asyncio.to_thread(nuncius, "up", "--store", dsn, "--telesto-port=0", *CLOSED)
    assert done.returncode == 1
    assert "the database is at version 99, this program knows" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--telesto-port", "many"], "neither a port nor"),
        (["--telesto-port", "65536"], "neither a port nor"),
        (["--store", "x", "--data-dir", "y"], "not both"),
        (["--store", "x", "--store-port", "5432"], "embedded server only"),
        (["--workers", "0"], "--workers"),
        (["--allow-origin", "*"], "like https://example.org"),
        (["--queue-dialect", "a3"], "--queue-dialect"),
        (["--log-level", "loud"], "--log-level"),
        (["--nonsense"], "No such option"),
    ],
)
def test_wrong_use(arguments: list[str], words: str) -> None:
    """A mistake in the command line is explained, with exit code 2."""
    done = nuncius("up", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_site_that_is_allowed(dsn: str) -> None:
    """Pages of a site that is named may use the HTTP door, those of others may not."""
    friend = "https://friend.example"
    with node("--store", dsn, "--http-port=0", "--allow-origin", friend) as started:
        codes = []
        for origin in (friend, "https://evil.example"):
            connection = http.client.HTTPConnection("127.0.0.1", started.ready["ports"]["http"], timeout=60)
            connection.request("GET", "/livez", headers={"Origin": origin})
            answer = connection.getresponse()
            codes.append((answer.status, answer.headers["Access-Control-Allow-Origin"]))
            connection.close()
    assert codes == [(200, friend), (403, None)]


def test_listening_to_everybody(dsn: str) -> None:
    """A node that other machines can reach warns of it."""
    with node("--store", dsn, "--host", "0.0.0.0") as started:  # noqa: S104 - that is the point
        line = started.wait_for("can read and write everything")
        assert "WARNING" in line
        assert line.rstrip().endswith("host=0.0.0.0")


@pytest.mark.parametrize("style", ["text", "json"])
def test_ready_is_logged(dsn: str, style: str) -> None:
    """A node without a terminal logs at the usual level that it is ready, and where."""
    command = [*NUNCIUS, "up", "--store", dsn, "--telesto-port=0", *CLOSED, f"--log-format={style}"]
    up = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert up.stderr is not None
    line = up.stderr.readline()
    assert "ready" in line
    assert "nuncius://127.0.0.1:" in line
    if style == "json":
        document = json.loads(line)
        assert (document["message"], document["level"], document["store"]) == ("ready", "info", dsn)
    up.send_signal(signal.SIGTERM)
    assert up.communicate(timeout=300) == ("", "")


def test_trace_without_its_extra(dsn: str, tmp_path: Path) -> None:
    """Without the library for trace files, a node says what to install."""
    (tmp_path / "pyarrow.py").write_text("raise ImportError")
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = nuncius(
        *("up", "--store", dsn, "--telesto-port=0", *CLOSED, "--trace", str(tmp_path / "traces")),
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "trace files need pyarrow: install the extra `trace`" in done.stderr
    assert "internal error" not in done.stderr


def test_json_logs(dsn: str) -> None:
    """With --log-format json every line on stderr is an object."""
    with node("--store", dsn, "--log-format=json", "--log-level=info") as started:
        code, said = started.stop()
    assert code == 0
    messages = [json.loads(line)["message"] for line in said.splitlines()]
    assert "stopping" in messages


def test_interrupted_while_starting(data_dir: Path) -> None:
    """SIGTERM while the embedded server starts ends the command, and no server stays behind."""
    up = subprocess.Popen(
        [
            *NUNCIUS,
            "up",
            "--data-dir",
            str(data_dir),
            "--telesto-port=0",
            *CLOSED,
            "--log-level=debug",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        up.send_signal(signal.SIGTERM)
        out, _ = up.communicate(timeout=300)
    finally:
        up.kill()
        up.communicate()
    assert up.returncode in {143, -signal.SIGTERM, 0}
    assert out == b""
    assert embedded.running(data_dir) is None


def test_the_node_helper_reports_failures() -> None:
    """A node that does not start raises with what it said."""
    with pytest.raises(RuntimeError, match="neither a port"):
        Node("--telesto-port=x")


@pytest.mark.parametrize("more", [(), ("--workers=2",)])
def test_the_queues_dialect(dsn: str, more: tuple[str, ...]) -> None:
    """The partitioned queue answers in the dialect that was chosen, whichever worker is asked."""
    with node("--store", dsn, "--http-port=0", "--queue-dialect=a2", *more) as started:
        said = []
        for path in ("producer/register?", "producer/produce?producer_id=1&message=x&"):
            connection = http.client.HTTPConnection("127.0.0.1", started.ready["ports"]["http"], timeout=60)
            connection.request("POST", f"/{path}topic=A")
            said.append(json.loads(connection.getresponse().read())["message"])
            connection.close()
    assert said == ["Producer ID 1 registered for topic A", "Producer ID 1 published in topic A"]
