"""A password in the address of a store is seen by the store, and by nothing else."""

import json
import subprocess
from pathlib import Path

import psutil
import pytest

from cli.commands import CLOSED, NUNCIUS, node
from nuncius import testing
from nuncius.client import Client
from nuncius.store.address import shown, without_password
from nuncius.store.environment import STORE

CANARY = "canary"


def secret(dsn: str) -> str:
    """The same database; the server trusts its socket and looks at no password."""
    return dsn.replace("@", f":{CANARY}@", 1)


def family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def arguments(pid: int) -> str:
    return "\n".join(" ".join(each.cmdline()) for each in family(pid))


@pytest.mark.parametrize("how", ["option", "environment"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_node(dsn: str, tmp_path: Path, how: str, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process of a node shows it, neither does the ready file, the line on a leash or the log."""
    assert secret(dsn) != dsn
    file = tmp_path / "ready.json"
    options = [f"--workers={workers}", f"--ready-file={file}", "--log-level=debug", "--http-port=0"]
    if how == "option":
        options += ["--store", secret(dsn)]
    else:
        monkeypatch.setenv(STORE, secret(dsn))
    with node(*options) as up:
        with Client(up.url) as client:
            client.publish("news", "hello")
        seen = arguments(up.process.pid) + file.read_text() + json.dumps(up.ready)
        assert up.dsn == dsn
        code, said = up.stop()
    assert code == 0
    assert said
    assert CANARY not in seen + said


def test_other_commands(dsn: str) -> None:
    """No command shows it, in its arguments or in what it says."""
    console = subprocess.Popen(
        [*NUNCIUS, "console", "--port=0", "--store", secret(dsn), "--log-level=debug"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert console.stdout is not None
    try:
        assert "The console is at" in console.stdout.readline()
        assert CANARY not in arguments(console.pid)
    finally:
        console.terminate()
        out, said = console.communicate()
    assert CANARY not in out + said
    refused = subprocess.run(
        [*NUNCIUS, "up", *CLOSED, f"--store=postgresql://me:{CANARY}@127.0.0.1:1/x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert CANARY not in refused.stdout + refused.stderr


def test_a_broker_for_tests(dsn: str) -> None:
    """nuncius.testing hands it over in the environment, and knows the whole address."""
    with testing.broker(store=secret(dsn)) as broker:
        assert broker.dsn == secret(dsn)
        assert CANARY not in arguments(broker.pid)


def test_arguments_stay_what_they_are(dsn: str, tmp_path: Path) -> None:
    """A program that masked its arguments works with the real ones, whatever is in them."""
    body = f"héé\n http://me:{CANARY}@host/ 'x'"
    with node("--store", dsn) as up:
        command = [*NUNCIUS, "publish", "news", body, "--url", up.url]
        subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
        with Client(up.url) as client:
            assert [entry.text for entry in client.fetch("news")] == [body]


@pytest.mark.parametrize(
    ("address", "masked", "bare"),
    [
        ("postgresql://u:p@h/d", "postgresql://u:***@h/d", "postgresql://u@h/d"),
        ("postgresql://:p@h/d", "postgresql://:***@h/d", "postgresql://@h/d"),
        (
            "postgresql://u:p%40q@h:1,i:2/d?a=1",
            "postgresql://u:***@h:1,i:2/d?a=1",
            "postgresql://u@h:1,i:2/d?a=1",
        ),
        ("postgresql://u:p@q@h/d", "postgresql://u:***@h/d", "postgresql://u@h/d"),
        ("postgresql:///d?password=p", "postgresql:///d?password=***", "postgresql:///d"),
        (
            "postgresql:///d?a=1&password=p&b=2",
            "postgresql:///d?a=1&password=***&b=2",
            "postgresql:///d?a=1&b=2",
        ),
        (
            "postgresql:///d?sslpassword=p&PASSWORD=q&b=2",
            "postgresql:///d?sslpassword=***&PASSWORD=***&b=2",
            "postgresql:///d?b=2",
        ),
        (
            "postgresql://u@/d?host=/tmp&port=1",
            "postgresql://u@/d?host=/tmp&port=1",
            "postgresql://u@/d?host=/tmp&port=1",
        ),
        ("nuncius://127.0.0.1:9001", "nuncius://127.0.0.1:9001", "nuncius://127.0.0.1:9001"),
    ],
)
def test_addresses(address: str, masked: str, bare: str) -> None:
    """An address is shown with its passwords masked, or handed on without them."""
    assert shown(address) == masked
    assert without_password(address) == bare


def test_an_unescaped_password() -> None:
    """A password that was not escaped is masked to its end."""
    assert shown("postgresql://u:p/a#b@h/d") == "postgresql://u:***@h/d"
