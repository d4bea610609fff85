"""The command line as a whole: help, completion, exit codes, and never a traceback for a user's mistake."""

import os
import subprocess
import sys

import pytest

from cli.commands import nuncius
from nuncius.cli import errors
from nuncius.client import errors as client_errors
from nuncius.store.errors import StoreUnavailable

NOWHERE = "nuncius://127.0.0.1:1"
COMMANDS = [
    "up",
    "node",
    "status",
    "top",
    "doctor",
    "console",
    "demo",
    "tour",
    "migrate",
    "put",
    "take",
    "work",
    "publish",
    "subscribe",
    "tail",
    "request",
    "reply",
    "pubsub",
    "pipeline",
    "cluster",
    "tribbler",
    "stomp-client",
    "trib",
    "kv",
    "bench",
    "queue",
    "topic",
]


def test_help() -> None:
    """The help lists every command."""
    done = nuncius("--help")
    assert done.returncode == 0
    listed = done.stdout.split("Commands:")[1].splitlines()
    assert {line.split()[0] for line in listed if line.startswith("  ") and line[2] != " "} == set(COMMANDS)


def test_version() -> None:
    """The version is one line."""
    done = nuncius("--version")
    assert done.stdout.startswith("nuncius 0.")
    assert done.stdout.count("\n") == 1


def test_no_command() -> None:
    """Without a command the help is shown, with the exit code of wrong use."""
    assert nuncius().returncode == 2
    unknown = nuncius("nonsense")
    assert unknown.returncode == 2
    assert "No such command" in unknown.stderr


def test_completion() -> None:
    """A shell gets the commands that begin with what was typed."""
    asked = {"_NUNCIUS_COMPLETE": "complete_bash", "COMP_WORDS": "nuncius pu", "COMP_CWORD": "1"}
    done = nuncius(env=os.environ | asked)
    assert done.stdout.split() == ["put", "publish", "pubsub"]


def test_no_node() -> None:
    """A node that is not there is one line and an exit code of its own."""
    done = nuncius("status", "--url", NOWHERE)
    assert done.returncode == errors.NO_CONNECTION
    assert done.stderr.startswith("nuncius: cannot connect to 127.0.0.1:1")
    assert done.stderr.count("\n") == 1


def test_debug() -> None:
    """NUNCIUS_DEBUG=1 shows the traceback."""
    done = nuncius("status", "--url", NOWHERE, env=os.environ | {"NUNCIUS_DEBUG": "1"})
    assert done.returncode == errors.NO_CONNECTION
    assert "Traceback (most recent call last)" in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (client_errors.Timeout("no answer in time"), 3, "no answer in time"),
        (client_errors.CannotConnect("nobody there"), 4, "nobody there"),
        (client_errors.InvalidInput("too long"), 2, "too long"),
        (client_errors.NotFound("no queue 'a\x1b[2J\nb'"), 1, "no queue 'a\\x1b[2J b'"),
        (StoreUnavailable("gone"), 1, "gone"),
        (FileNotFoundError(2, "No such file", "x"), 1, "[Errno 2] No such file: 'x'"),
        (KeyError("x"), 1, "internal error: KeyError: 'x' (NUNCIUS_DEBUG=1 shows more)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_errors(error: Exception, code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every error is one line without anything that could act on a terminal."""
    assert errors.report(error) == code
    assert capsys.readouterr().err == f"nuncius: {text}\n"


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import nuncius", "asyncio"),
        ("from nuncius.cli.app import build; build()", "asyncpg"),
        ("from nuncius.cli.app import build; build('up')", "msgspec"),
    ],
)
def test_nothing_is_loaded_before_it_is_needed(statement: str, unwanted: str) -> None:
    """Importing the package, and asking for help, stay fast because heavy modules wait."""
    code = f"import sys; {statement}; sys.exit({unwanted!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
