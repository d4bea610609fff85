"""`put`, `take`, `publish`, `subscribe`, `tail`, `request` and `reply`."""

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from cli.commands import NUNCIUS, nuncius
from cli.conftest import Commands
from nuncius.client import Client
from nuncius.testing import Broker


def lag(client: Client, topic: str, subscriber: str) -> int:
    (state,) = client.subscriptions(topic, subscriber)
    return state.lag


def start(broker: Broker, *arguments: str) -> subprocess.Popen[str]:
    """A command that stays."""
    return subprocess.Popen(
        [*NUNCIUS, *arguments],
        env=os.environ | {"NUNCIUS_URL": broker.url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupt(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


# Queues


def test_put_and_take(run: Commands, client: Client) -> None:
    """What is put comes out once, by priority or by age; then there is nothing, which has a code."""
    client.create_queue("q1")
    assert len(run.well("put", "q1", "low", "-p", "1")) == 1
    put = json.loads(run.well("put", "q1", "high", "-p", "9", "-H", "a=b", "-o", "json")[0])
    run.well("put", "q1", "mid 1", "mid 2")
    (taken,) = run.well("take", "q1", "-o", "json")
    message = json.loads(taken)
    assert (message["id"], message["body"], message["headers"]) == (put["id"], "high", {"a": "b"})
    assert run.well("take", "q1", "--by-time") == ["low"]
    assert run.well("take", "q1", "-n", "5", "--wait", "0.05") == ["mid 1", "mid 2"]
    empty = run("take", "q1")
    assert (empty.code, empty.out, empty.err) == (3, "", "")


def test_put_from_stdin_and_files(run: Commands, client: Client, tmp_path: Path) -> None:
    """Standard input is one message, or one a line; a file is one, bytes as they are."""
    client.create_queue("q2")
    run.well("put", "q2", stdin=b"two\nlines")
    assert run.well("put", "q2", "--lines", stdin=b"a\n\nb") == ["queue q2, 3 messages"]
    file = tmp_path / "binary"
    file.write_bytes(b"\xff\0\n")
    run.well("put", "q2", "--file", str(file))
    assert run("take", "q2", "-n", "4", "-o", "raw").raw == b"two\nlines\na\n\nb\n"
    assert run("take", "q2", "-o", "raw").raw == b"\xff\0\n\n"
    done = run("put", "q2", "--lines", "-o", "json", stdin=b"x\n")
    assert json.loads(done.out) == {"queue": "q2", "messages": 1}


def test_receiver(run: Commands, client: Client) -> None:
    """A message for one client is seen by nobody else; an unknown client is explained."""
    client.create_queue("q3")
    done = run("put", "q3", "x", "--receiver", "bob")
    assert done.code == 1
    assert "there is no client 'bob'; a client exists once it was connected" in done.err
    assert run("take", "q3", "--as", "bob").code == 3
    run.well("put", "q3", "for bob", "--receiver", "bob")
    assert run("take", "q3").code == 3
    assert run.well("take", "q3", "--as", "bob") == ["for bob"]


def test_missing_queue(run: Commands) -> None:
    """Whoever names a queue that does not exist is told how to make it."""
    advice = "nuncius: there is no queue 'gone'; make it with: nuncius queue create gone\n"
    for arguments in (["put", "gone", "x"], ["take", "gone"], ["request", "gone", "x"]):
        done = run(*arguments)
        assert (done.code, done.out, done.err) == (1, "", advice)


@pytest.mark.parametrize(
    "arguments",
    [
        ["put", "q", "x", "--header", "novalue"],
        ["put", "q", "x", "--priority", "11"],
        ["put", "q", "x", "--lines"],
        ["put", "q", "--file", "/no/such/file"],
        ["take", "q", "--wait", "1", "--follow"],
        ["reply", "q"],
        ["reply", "--echo", "q", "cat"],
        ["subscribe", "t", "s", "--from", "middle"],
    ],
)
def test_wrong_use(run: Commands, arguments: list[str]) -> None:
    """Wrong use ends with code 2 and does nothing."""
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err


def test_follow(broker: Broker, client: Client) -> None:
    """`take --follow` shows messages as they come until Ctrl-C, and ends quietly."""
    client.create_queue("q4")
    process = start(broker, "take", "q4", "--follow")
    assert process.stdout is not None
    for body in ("one", "two"):
        client.put("q4", body)
        assert process.stdout.readline() == f"{body}\n"
    assert interrupt(process) == (130, "", "")


# Topics


def test_publish(run: Commands, client: Client) -> None:
    """Entries are published with key, headers and partition, and their places are shown."""
    client.create_topic("t1", partitions=2)
    places = run.well("publish", "t1", "a", "b", "--partition", "2", "-k", "key", "-H", "h=v=w")
    assert places == ["topic t1, partition 2, offset 0", "topic t1, partition 2, offset 1"]
    line = run.well("publish", "t1", "c", "--partition", "1", "-o", "json")[0]
    assert json.loads(line) == {"topic": "t1", "partition": 1, "offset": 0}
    entry = client.fetch("t1", 2)[0]
    assert (entry.text, entry.key, entry.headers) == ("a", "key", {"h": "v=w"})


def test_publish_many_lines(run: Commands, client: Client) -> None:
    """Lines arrive in order, however many batches they make."""
    lines = [f"line {n}" for n in range(25_000)]
    done = run.well("publish", "t2", "--lines", "--publisher", "cli", stdin="\n".join(lines).encode())
    assert done == ["topic t2, 25,000 entries"]
    with client.subscribe("t2", "check", start="earliest") as subscription:
        seen: list[str] = []
        while len(seen) < len(lines):
            seen += [entry.text for entry in subscription.next_batch(30)]
    assert seen == lines


def test_lines_as_they_come(broker: Broker, client: Client) -> None:
    """A line from a pipe is published when it comes, not when the pipe ends."""
    process = subprocess.Popen(
        [*NUNCIUS, "publish", "t3", "--lines", "--url", broker.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    with client.subscribe("t3", "check") as subscription:
        for body in (b"one", b"two"):
            process.stdin.write(body + b"\n")
            process.stdin.flush()
            assert [entry.body for entry in subscription.next_batch(30)] == [body]
    out, _ = process.communicate(timeout=300)
    assert (process.returncode, out) == (0, b"topic t3, 2 entries\n")


def test_progress_on_a_terminal(broker: Broker) -> None:
    """Somebody who watches sees how far it is; what is left in the end is the summary."""
    master, slave = pty.openpty()
    done = subprocess.run(
        [*NUNCIUS, "publish", "t4", "--lines", "--url", broker.url],
        input=b"x\n" * 300_000,
        stdout=subprocess.PIPE,
        stderr=slave,
        timeout=300,
        check=False,
    )
    os.close(slave)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert done.stdout == b"topic t4, 300,000 entries\n"
    assert " published, " in shown
    assert shown.endswith("\r\x1b[K")


def test_too_long_a_line(run: Commands, client: Client) -> None:
    """A line that no broker takes is refused with what was stored before it."""
    done = run("publish", "t5", "--lines", stdin=b"ok\n" * 3000 + b"x" * (9 << 20) + b"\n")
    assert done.code == 2
    assert "a message has at most" in done.err
    assert "were stored before" in done.err
    assert client.topics("t5")[0].entries == 3000


def test_subscribe(run: Commands, client: Client) -> None:
    """A subscription goes on where it was; only looking leaves it where it is."""
    client.publish_batch("t6", ["a", "b", "c"])
    assert run.well("subscribe", "t6", "s", "--from", "earliest", "-n", "1") == ["a"]
    assert run.well("subscribe", "t6", "s", "--no-confirm", "-n", "2") == ["b", "c"]
    assert lag(client, "t6", "s") == 2
    assert [line.split()[0] for line in run.well("subscribe", "t6", "s", "-v", "--wait", "0.5")] == [
        "1@1",
        "1@2",
    ]
    assert lag(client, "t6", "s") == 0
    nothing = run("subscribe", "t6", "s", "--wait", "0.05")
    assert (nothing.code, nothing.out) == (3, "")


def test_subscribe_to_a_topic_that_is_not_there(run: Commands, client: Client) -> None:
    """A topic that is made is mentioned, on stderr; with --no-create there is none."""
    refused = run("subscribe", "TYPO", "me", "--no-create", "--wait", "0.01")
    assert (refused.code, refused.out, refused.err) == (1, "", "nuncius: there is no topic 'TYPO'\n")
    assert client.topics("TYPO") == []
    made = run("subscribe", "TYPO", "me", "--wait", "0.01")
    assert (made.code, made.out) == (3, "")
    assert made.err.startswith("nuncius: made the topic 'TYPO', and waiting for messages")
    assert run("subscribe", "TYPO", "me", "--no-create", "--wait", "0.01").err == ""


def test_subscribe_until_interrupted(broker: Broker, client: Client) -> None:
    """Entries are shown as they come; Ctrl-C ends that without a word."""
    client.subscribe("t7", "s").close()
    process = start(broker, "subscribe", "t7", "s", "-o", "json")
    assert process.stdout is not None
    client.publish("t7", "hello")
    assert json.loads(process.stdout.readline())["body"] == "hello"
    assert interrupt(process) == (130, "", "")


def test_nothing_is_confirmed_that_nobody_got(broker: Broker, client: Client) -> None:
    """When the reader of the output has gone, what it did not get stays unconfirmed, and nobody complains."""
    client.publish("t8", "x")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*NUNCIUS, "subscribe", "t8", "s", "--from", "earliest", "--url", broker.url],
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=300,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")
    assert lag(client, "t8", "s") == 1


def test_tail(run: Commands, client: Client) -> None:
    """The last entries of a topic in the order of their arrival, or of one partition, without a trace."""
    client.create_topic("t9", partitions=2)
    for n in range(6):
        client.publish("t9", f"{n}", partition=1 + n % 2)
    assert run.well("tail", "t9", "-n", "4") == ["2", "3", "4", "5"]
    assert run.well("tail", "t9", "--partition", "2") == ["1", "3", "5"]
    assert run.well("tail", "t9", "-n", "0") == []
    assert client.subscriptions("t9") == []
    done = run("tail", "t9", "--partition", "3")
    assert (done.code, done.err) == (2, "nuncius: topic 't9' has no partition 3\n")


def test_tail_follows(broker: Broker, client: Client) -> None:
    """`tail --follow` shows what comes in every partition until Ctrl-C."""
    client.create_topic("t10", partitions=2)
    client.publish("t10", "before", partition=1)
    process = start(broker, "tail", "t10", "--follow")
    assert process.stdout is not None
    assert process.stdout.readline() == "before\n"
    for partition in (1, 2):
        client.publish("t10", f"in {partition}", partition=partition)
        assert process.stdout.readline() == f"in {partition}\n"
    assert interrupt(process) == (130, "", "")


# There and back


def test_request_and_reply(broker: Broker, client: Client) -> None:
    """A command answers requests: the body is its input, its output is the answer."""
    client.create_queue("r1")
    process = start(broker, "reply", "-n", "2", "r1", "sh", "-c", "tr a-z A-Z")
    assert nuncius("request", "r1", "hello", "--url", broker.url).stdout == "HELLO\n"
    assert client.request("r1", "bye", timeout=30).text == "BYE"
    assert process.communicate(timeout=300) == ("", "")
    assert process.returncode == 0


def test_failing_command(broker: Broker, client: Client) -> None:
    """When the command fails, both sides are told, and the requester's exit code says so."""
    client.create_queue("r2")
    process = start(broker, "reply", "-n", "1", "r2", "sh", "-c", "echo partial; exit 7")
    done = nuncius("request", "r2", "x", "--url", broker.url)
    assert (done.returncode, done.stdout) == (1, "partial\\n\n")
    assert done.stderr == "nuncius: the answer is an error: sh ended with status 7\n"
    assert process.communicate(timeout=300) == ("", "nuncius: sh ended with status 7\n")


def test_echo(broker: Broker, client: Client) -> None:
    """`reply --echo` answers with the request; a message that is no request is only mentioned."""
    client.create_queue("r3")
    client.put("r3", "no request", priority=10)
    process = start(broker, "reply", "--echo", "-n", "2", "r3")
    assert client.request("r3", b"\xff", timeout=30).body == b"\xff"
    _, err = process.communicate(timeout=300)
    assert "is no request" in err


def test_no_answer(run: Commands, client: Client) -> None:
    """A request that nobody answers in time ends with the code for that."""
    client.create_queue("r4")
    done = run("request", "r4", "x", "--wait", "0.05")
    assert (done.code, done.err) == (3, "nuncius: no answer within 0.05 seconds\n")


def test_command_that_does_not_exist(run: Commands, client: Client) -> None:
    """A command that cannot be run ends `reply` with a sentence, before it takes a request."""
    client.create_queue("r5")
    client.put("r5", "x")
    done = run("reply", "r5", "/no/such/command")
    assert done.code == 2
    assert "there is no program '/no/such/command'" in done.err
    assert client.take("r5") is not None
