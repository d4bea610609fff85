"""`work`: a program works on messages, and what it fails at comes again."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from cli.commands import NUNCIUS
from cli.conftest import Commands
from nuncius.client import Client, Lease
from nuncius.testing import Broker


def start(broker: Broker, *arguments: str) -> subprocess.Popen[str]:
    """A worker that stays."""
    return subprocess.Popen(
        [*NUNCIUS, "work", *arguments],
        env=os.environ | {"NUNCIUS_URL": broker.url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def next_lease(client: Client, queue: str) -> Lease:
    lease = client.lease(queue, wait=20)
    assert lease is not None
    return lease


def reasons(client: Client, queue: str) -> list[str]:
    return [
        each["reason"] for each in client.status()["failures"] if each["destination"] == f"/queue/{queue}"
    ]


def test_work(broker: Broker, client: Client) -> None:
    """The body is the command's input, what it prints is printed, and a message that it has worked on is
    gone."""
    client.create_queue("w1")
    client.put_batch("w1", ["one", "two"])
    process = start(broker, "-n", "2", "w1", "--", "sh", "-c", "tr a-z A-Z; echo")
    assert process.communicate(timeout=60) == ("ONE\nTWO\n", "")
    assert process.returncode == 0
    assert client.lease("w1") is None
    assert reasons(client, "w1") == []


def test_a_command_that_fails(broker: Broker, client: Client) -> None:
    """What the command fails at comes again, with how it ended as the reason, and the worker goes on."""
    client.create_queue("w2")
    client.put_batch("w2", ["bad", "good"])
    process = start(broker, "-n", "2", "w2", "grep", "good")
    assert process.communicate(timeout=60) == ("good\n", "nuncius: grep ended with status 1\n")
    assert process.returncode == 0
    assert reasons(client, "w2") == ["grep ended with status 1"]
    lease = next_lease(client, "w2")
    assert (lease.message.text, lease.attempts) == ("bad", 1)
    lease.settle()


@pytest.mark.parametrize(("number", "queue"), [(signal.SIGINT, "w3"), (signal.SIGTERM, "w4")])
def test_a_worker_that_is_stopped(
    broker: Broker, client: Client, tmp_path: Path, number: signal.Signals, queue: str
) -> None:
    """Whoever stops a worker stops its command, and the message comes again."""
    client.create_queue(queue)
    client.put(queue, "x")
    mark = tmp_path / "stopped"
    script = f"trap 'touch {mark}; exit' TERM; cat; echo ' begun'; while :; do sleep 0.05; done"
    process = start(broker, queue, "sh", "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == "x begun\n"
    process.send_signal(number)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 130
    assert mark.exists()
    assert reasons(client, queue) == ["the worker was stopped"]
    assert next_lease(client, queue).attempts == 1


def test_a_worker_that_is_killed(broker: Broker, client: Client) -> None:
    """A worker that is killed with a message in hand loses nothing: another works on it."""
    client.create_queue("w5")
    client.put("w5", "x")
    as_long_as_it_lives = "echo begun; while kill -0 $PPID 2>/dev/null; do sleep 0.05; done"
    process = start(broker, "w5", "sh", "-c", as_long_as_it_lives)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.kill()
    process.wait(60)
    process.communicate(timeout=60)
    other = start(broker, "-n", "1", "w5", "cat")
    assert other.communicate(timeout=60) == ("x", "")


def test_a_command_that_does_not_exist(run: Commands, client: Client) -> None:
    """A command that cannot be run ends the worker, and the message stays as it was."""
    client.create_queue("w6")
    client.put("w6", "x")
    done = run("work", "w6", "/no/such/command")
    assert done.code == 2
    assert "there is no program '/no/such/command'" in done.err
    assert next_lease(client, "w6").attempts == 0


def test_wrong_use(run: Commands, client: Client) -> None:
    """A worker needs a command and a queue that exists."""
    done = run("work", "w7")
    assert (done.code, done.out) == (2, "")
    done = run("work", "w7", "cat")
    assert done.code == 1
    assert "nuncius queue create w7" in done.err
    client.create_queue("w8")
    assert run("work", "w8", "--").code == 2
