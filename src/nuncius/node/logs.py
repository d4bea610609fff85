r"""Logs: one line per record, as text for people or as JSON for programs.

Values in a log come from outside: names of queues, error texts of servers, bytes of clients. None of them may
forge a line, move a terminal's cursor or fill a disk. So every value is escaped and cut, here and nowhere
else. Code logs a fixed message and puts values from outside into `extra`:

    log.warning("store unreachable", extra={"lane": name, "error": str(error)})
    2026-01-31T12:00:00.000Z WARNING nuncius.store.combiner.lane store unreachable lane=publish error="\"b\""
"""

import json
import logging
import math
import re
import sys
from datetime import UTC, datetime
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
MAX_VALUE = 2000  # characters of one value; a client could send megabytes
MAX_TRACEBACK = 20_000

_BARE = re.compile(r"[A-Za-z0-9_.:/@%+,-]+")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Attributes of every record, and uvicorn's second copy of the message with escape codes for terminals.
_IGNORED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
READY = "nuncius.node.ready"


def configure(level: str = "warning", style: str = "text", stream: TextIO | None = None) -> None:
    """Send the records of this process to stderr, or to `stream`."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # The line that a node is ready is logged at the default level, too.
    logging.getLogger(READY).setLevel(logging.INFO if level == "warning" else logging.NOTSET)


def as_json() -> bool:
    """Return True if this process writes its log as JSON."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)


def escape(text: str) -> str:
    """Escape all characters that control a terminal or end a line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _SHORT.get(c) or _code(c) for c in text)


def quote(value: object) -> str:
    """Format the value of a `key=value` pair: bare if that is unambiguous, otherwise in quotes."""
    text = _cut(str(value))
    if _BARE.fullmatch(text):
        return text
    return '"' + escape(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


class TextFormatter(logging.Formatter):
    """Format records as time, level, logger, message and values; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        message = escape(_cut(record.getMessage()))
        parts = [_time(record), record.levelname, record.name, message]
        parts += [f"{name}={quote(value)}" for name, value in _values(record)]
        lines = [" ".join(parts)]
        # Marked, so that an exception's text cannot look like a record.
        if record.exc_info:
            text = _cut(self.formatException(record.exc_info), MAX_TRACEBACK)
            lines += [f"    | {escape(line)}" for line in text.split("\n") if line]
        return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    """Format each record as one JSON object: time, level, logger, message, values, and a traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        content: dict[str, object] = {
            name: _plain(value) for name, value in _values(record)
        }  # first, so that values cannot replace the names below
        content |= {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        if record.exc_info:
            content["traceback"] = _cut(self.formatException(record.exc_info), MAX_TRACEBACK)
        return json.dumps(content).replace("\x7f", "\\u007f")


def _time(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return time.replace("+00:00", "Z")


def _values(record: logging.LogRecord) -> list[tuple[str, object]]:
    """Return the values that the caller gave as `extra`."""
    return [(name, value) for name, value in vars(record).items() if name not in _IGNORED]


def _plain(value: object) -> object:
    """Convert a value to one that JSON can represent."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return _cut(str(value))


def _cut(text: str, limit: int = MAX_VALUE) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def _code(character: str) -> str:
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
