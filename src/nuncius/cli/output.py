"""Output of commands: tables for people, JSON for programs, messages one a line.

Names, bodies and headers come from clients. Characters that are not printable are written as escapes, and
rich gets text, never markup: a message can neither move the cursor nor imitate our own output.
"""

import base64
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from nuncius.client.model import Entry, Message
from nuncius.node.logs import escape

Cell = str | int | None

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
_AGES = ((86400, "d"), (3600, "h"), (60, "min"))
_NOT_ASCII = re.compile(r"[^\x20-\x7e\n]")


class Format(StrEnum):
    """How to print lists and facts."""

    TABLE = "table"
    JSON = "json"


class StreamFormat(StrEnum):
    """How to print messages as they come."""

    TEXT = "text"
    JSON = "json"
    RAW = "raw"


# Values

printable = escape  # as for a log: one line, no control characters


def body_text(body: bytes) -> str:
    """Return a body as one line; bytes that are not text become a marker and base64."""
    text = decoded(body)
    return f"base64:{base64.b64encode(body).decode()}" if text is None else printable(text)


def decoded(body: bytes) -> str | None:
    """Return the body as text, or None if it is not UTF-8 or contains a NUL."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def size(count: int) -> str:
    """Format a number of bytes, as in 1.5 MB."""
    value, unit = float(count), _UNITS[0]
    for larger in _UNITS[1:]:
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{count} bytes" if unit == _UNITS[0] else f"{value:.3g} {unit}"


def age(seconds: float) -> str:
    """Format a duration, as in 5 min."""
    for length, unit in _AGES:
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(seconds, 0):.0f} s"


def since(time: datetime | None) -> str:
    """Format the time that has passed since then."""
    return "-" if time is None else age((datetime.now(UTC) - time).total_seconds())


# Documents


def json_line(document: object) -> str:
    """JSON on one line, as safe for a terminal as `printable` text."""
    return _safe(msgspec.json.encode(document).decode())


def json_document(document: object) -> str:
    """Format JSON on several lines."""
    return _safe(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def _safe(text: str) -> str:
    """Escape characters of a JSON text that are not printable. They occur only inside strings."""
    return _NOT_ASCII.sub(lambda found: found[0] if found[0].isprintable() else _utf16(found[0]), text)


def _utf16(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def content(message: Entry | Message) -> dict[str, Any]:
    """Return an entry or a message as a JSON document. A body that is not text becomes base64."""
    if isinstance(message, Entry):
        document: dict[str, Any] = {
            "topic": message.topic,
            "partition": message.partition,
            "offset": message.offset,
            "key": message.key,
        }
    else:
        document = {
            "queue": message.queue,
            "id": message.message_id,
            "priority": message.priority,
            "sender": message.sender_id,
            "receiver": message.receiver_id,
            "context": message.context,
        }
    document |= {"time": message.time, "headers": message.headers}
    text = decoded(message.body)
    if text is None:
        return document | {"body_base64": base64.b64encode(message.body).decode()}
    return document | {"body": text}


def message_line(message: Entry | Message, *, verbose: bool = False) -> str:
    """Format an entry or a message as one line."""
    if not verbose:
        return body_text(message.body)
    if isinstance(message, Entry):
        where = f"{message.partition}@{message.offset}"
        labels = {} if message.key is None else {"key": message.key}
    else:
        where = f"#{message.message_id} p{message.priority}"
        labels = {}
    labels |= message.headers
    words = [where, f"{message.time:%Y-%m-%dT%H:%M:%S.%fZ}"]
    words += [f"{printable(name)}={printable(value)}" for name, value in labels.items()]
    return "  ".join([*words, body_text(message.body)])


# Printing


def write(line: str) -> None:
    """Write a line of output. Characters that the output's encoding lacks become escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def write_messages(messages: Iterable[Entry | Message], form: StreamFormat, *, verbose: bool = False) -> None:
    """Write messages, one a line, and flush them."""
    if form is StreamFormat.RAW:
        sys.stdout.flush()
        out = sys.stdout.buffer
        out.writelines(part for message in messages for part in (message.body, b"\n"))
        out.flush()
        return
    for message in messages:
        if form is StreamFormat.JSON:
            write(json_line(content(message)))
        else:
            write(message_line(message, verbose=verbose))
    sys.stdout.flush()


def write_document(document: object) -> None:
    write(json_document(document))


def write_outcome(form: Format, text: str, document: object) -> None:
    """Write the result of a command, as a sentence or as JSON."""
    write(json_line(document) if form is Format.JSON else text)


def write_facts(facts: Mapping[str, Cell]) -> None:
    """Write one line for each name and value."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        write(f"{name:<{width}}  {_cell(value)}")


def write_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, empty: str) -> None:
    """Write a table: drawn by rich on a terminal, elsewhere in plain columns that are never cut off. Numbers
    are aligned to the right."""
    if not rows:
        write(empty)
        return
    cells = [[_cell(value) for value in row] for row in rows]
    right = [all(_is_quantity(row[i]) for row in rows) for i in range(len(columns))]
    if sys.stdout.isatty():
        _draw(columns, cells, right)
        return
    lines = [[name.upper() for name in columns], *cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        padded = [
            f"{cell:>{width}}" if is_right else f"{cell:<{width}}"
            for cell, width, is_right in zip(line, widths, right, strict=True)
        ]
        write("  ".join(padded).rstrip())


def _draw(columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for name, is_right in zip(columns, right, strict=True):
        table.add_column(Text(name), justify="right" if is_right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


def _cell(value: Cell) -> str:
    return "-" if value is None else f"{value:,}" if type(value) is int else printable(str(value))


def _is_quantity(value: Cell) -> bool:
    return value is None or type(value) is int
