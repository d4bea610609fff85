"""What commands print, and what they never print."""

import json
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nuncius.cli import output
from nuncius.cli.output import StreamFormat
from nuncius.client import Entry, Message

EVIL = "\x1b[31mred\x1b]0;title\x07\u202e\x9b2J[bold]"


def entry(body: bytes, key: str | None = None, headers: str | None = None) -> Entry:
    return Entry(body, 1_000_000, headers, "news", 1, 7, key)


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (8_390_000, "8.39 MB"), (10**10, "10 GB")],
)
def test_size(count: int, shown: str) -> None:
    """Sizes have three figures and a unit."""
    assert output.size(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-1, "0 s"), (59, "59 s"), (61, "1 min"), (7200, "2 h"), (604800, "7 d")]
)
def test_age(seconds: float, shown: str) -> None:
    """Ages are given in the largest unit that fits."""
    assert output.age(seconds) == shown


def test_since() -> None:
    """A time in the past is shown as how long ago it was, none as a dash."""
    assert output.since(datetime.now(UTC) - timedelta(hours=3)) == "3 h"
    assert output.since(None) == "-"


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"hello", "hello"),
        ("Grüße, 世界".encode(), "Grüße, 世界"),
        (b"two\nlines\t\r", "two\\nlines\\t\\r"),
        (b"\x1b[31m", "\\x1b[31m"),
        (b"", ""),
        (b"\xff\xfe", "base64://4="),
        (b"a\0b", "base64:YQBi"),
    ],
)
def test_body_text(body: bytes, shown: str) -> None:
    """A body is one line of text, or says that it is none."""
    assert output.body_text(body) == shown


@given(st.text())
def test_json_is_printable_and_true(text: str) -> None:
    """JSON has nothing in it that acts on a terminal, and decodes to what went in."""
    line = output.json_line({"text": text.encode("utf-8", "replace").decode()})
    assert line.isprintable()
    assert json.loads(line)["text"] == text.encode("utf-8", "replace").decode()


@given(st.binary(), st.text())
def test_a_message_is_one_printable_line(body: bytes, key: str) -> None:
    """Whatever a message holds, it is shown as one line of printable characters."""
    key = key.encode("utf-8", "replace").decode()
    assert output.message_line(entry(body, key), verbose=True).isprintable()


def test_verbose_line() -> None:
    """More than the body: place, time, key and headers."""
    shown = output.message_line(entry(b"hi", "k", '{"a": "b"}'), verbose=True)
    assert shown == "1@7  1970-01-01T00:00:01.000000Z  key=k  a=b  hi"
    message = Message(b"hi", 1_000_000, None, "jobs", 3, 0, 0, 0, 5)
    assert output.message_line(message, verbose=True) == "#3 p5  1970-01-01T00:00:01.000000Z  hi"


def test_content() -> None:
    """For programs, a message has all its fields; a body that is no text comes as base64."""
    assert output.content(entry(b"hi", "k", '{"a": "b"}')) == {
        "topic": "news",
        "partition": 1,
        "offset": 7,
        "key": "k",
        "time": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "headers": {"a": "b"},
        "body": "hi",
    }
    message = output.content(Message(b"\xff", 0, None, "jobs", 3, 1, 2, 4, 5))
    assert message["body_base64"] == "/w=="
    assert (message["id"], message["sender"], message["receiver"], message["context"]) == (3, 1, 2, 4)


def test_table_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """In a pipe a table is plain columns, numbers on the right, nothing cut off."""
    long = "x" * 300
    output.write_table(("name", "count"), [("a", 1), (long, 1234), (EVIL, None)], empty="")
    header, first, second, third = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "COUNT"]
    assert first.endswith("      1")
    assert second == f"{long}  1,234"
    assert third.isprintable()
    assert "[bold]" in third


def test_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    """A table without rows says so in words."""
    output.write_table(("name",), [], empty="there is nothing")
    assert capsys.readouterr().out == "there is nothing\n"


def test_raw(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Raw bodies are bytes as they are, a line each."""
    output.write_messages([entry(b"\xff\0"), entry(b"b")], StreamFormat.RAW)
    assert capfdbinary.readouterr().out == b"\xff\0\nb\n"


def test_ascii_terminal() -> None:
    """Characters that the output cannot show are escaped rather than fatal."""
    code = "from nuncius.cli import output; output.write('Grüße')"
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert done.stdout == b"Gr\\xfc\\xdfe\n"


def test_table_on_a_terminal() -> None:
    """On a terminal rich draws the table; markup and control characters from outside stay text."""
    code = f"from nuncius.cli import output; output.write_table(('a', 'b'), [({EVIL!r}, 1)], empty='')"
    master, slave = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120", "NO_COLOR": "1"}
    subprocess.run([sys.executable, "-c", code], env=environment, stdout=slave, check=True)
    os.close(slave)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert "\\x1b[31mred\\x1b]0;title\\x07\\u202e\\x9b2J[bold]" in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown
