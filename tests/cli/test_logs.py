"""Logs say what happened on one line, whatever strangers put into it."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nuncius.node import logs

HOSTILE = [
    "two\nlines",
    'a "quote" and a \\',
    "\x1b[2J\x1b]0;title\x07",
    "carriage\rreturn",
    "delete\x7f and next line\x85 and separator\u2028",
    "right to left \u202e override",
    "a lone surrogate \udc80",
    "key=value level=ERROR",
    "",
]


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back afterwards."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)


def record(message: str, *args: object, **extra: Any) -> logging.LogRecord:
    return logging.getLogger("nuncius.test").makeRecord(
        "nuncius.test", logging.WARNING, "file.py", 1, message, args, None, extra=extra
    )


def raised(text: str) -> logging.LogRecord:
    made = record("it broke")
    error = ValueError(text)
    made.exc_info = (ValueError, error, None)
    return made


def test_text() -> None:
    """A line has the time, the level, the logger, the message and the values, bare where that is safe."""
    line = logs.TextFormatter().format(
        record("store unreachable", lane="publish", error="no route", attempt=3, left=None)
    )
    time, rest = line.split(" ", 1)
    assert time.endswith("Z")
    assert rest == (
        'WARNING nuncius.test store unreachable lane=publish error="no route" attempt=3 left=None'
    )


@pytest.mark.parametrize("value", HOSTILE)
def test_text_of_hostile_values(value: str) -> None:
    """No value ends a line, reaches a terminal's controls or passes for another value."""
    line = logs.TextFormatter().format(record("refused", queue=value))
    assert line.isprintable()
    quoted = line.split(" refused queue=", 1)[1]
    assert quoted[0] == quoted[-1] == '"'
    assert '"' not in quoted[1:-1].replace("\\\\", "").replace('\\"', "")


@given(st.text())
def test_any_text(value: str) -> None:
    """Whatever the value and the message, both formats make one printable line of them."""
    made = record("%s", value, value=value)
    assert logs.TextFormatter().format(made).isprintable()
    line = logs.JsonFormatter().format(made)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["value"] == value


@pytest.mark.parametrize("value", HOSTILE)
def test_traceback(value: str) -> None:
    """The lines of a traceback are marked, so that an exception cannot forge a record."""
    first, *rest = logs.TextFormatter().format(raised(value)).split("\n")
    assert first.endswith("nuncius.test it broke")
    assert all(line.startswith("    | ") and line.isprintable() for line in rest)
    document = json.loads(logs.JsonFormatter().format(raised(value)))
    assert (f"ValueError: {value}" if value else "ValueError") in document["traceback"]


def test_json() -> None:
    """Numbers stay numbers, other things become text, and no value takes the place of our own fields."""
    line = logs.JsonFormatter().format(
        record("done", count=3, ratio=0.5, infinite=float("inf"), body=b"\x00", level="x", none=None)
    )
    document = json.loads(line, parse_constant=pytest.fail)
    assert document.pop("time").endswith("Z")
    assert document == {
        "level": "warning",
        "logger": "nuncius.test",
        "message": "done",
        "count": 3,
        "ratio": 0.5,
        "infinite": "inf",
        "body": "b'\\x00'",
        "none": None,
    }


def test_colours_of_others() -> None:
    """What uvicorn adds for terminals is in no line."""
    made = record("Started", color_message="\x1b[36mStarted\x1b[0m", door="http")
    for formatter in (logs.TextFormatter(), logs.JsonFormatter()):
        line = formatter.format(made)
        assert "color" not in line
        assert "[36m" not in line


def test_long_values() -> None:
    """A value of megabytes is cut, and says how long it was."""
    made = record("%s", "m" * 10_000_000, value="v" * 10_000_000)
    for formatter in (logs.TextFormatter(), logs.JsonFormatter()):
        line = formatter.format(made)
        assert len(line) < 5000
        assert line.count("10000000 characters") == 2
        assert len(formatter.format(raised("x" * 10_000_000))) < 50_000


@pytest.mark.parametrize("style", logs.FORMATS)
def test_configure(root: logging.Logger, style: str) -> None:
    """Records below the level are not written, others are, once, however often logs are configured."""
    stream = io.StringIO()
    logs.configure("error", style)
    logs.configure("warning", style, stream)
    logging.getLogger("nuncius.test").info("quiet")
    logging.getLogger("nuncius.test").warning("heard")
    assert len(root.handlers) == 1
    assert stream.getvalue().count("heard") == 1
    assert "quiet" not in stream.getvalue()


@pytest.mark.parametrize(("level", "heard"), [("debug", 1), ("warning", 1), ("error", 0)])
def test_ready_is_heard(root: logging.Logger, level: str, heard: int) -> None:
    """That a node is ready is logged at the usual level, too, and not where only errors are."""
    del root
    stream = io.StringIO()
    logs.configure(level, "text", stream)
    logging.getLogger(logs.READY).info("ready")
    assert stream.getvalue().count("ready\n") == heard
