"""Write the tables of docs/doors/telesto.md from the table of packets.

Run it with `.venv/bin/python docs/generate/telesto_page.py`. A test fails if the page is out of date.
"""

import re
from pathlib import Path
from typing import Any

from nuncius.doors.telesto.fields_codec import Alone, Field, ListOf, fields_of
from nuncius.doors.telesto.table import (
    PACKETS,
    Dialect,
    Message,
    Number,
    Packet,
    Queue,
    Record,
    Request,
)

PAGE = Path(__file__).parents[1] / "doors" / "telesto.md"
_GENERATED = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def packets() -> str:
    """Return one line per packet; requests are in bold."""
    lines = ["| packet | report | deployed | payload |", "|---|---|---|---|"]
    for packet in PACKETS:
        report, deployed = (_payload(packet, dialect) for dialect in Dialect)
        payload = report if report == deployed else f"report: {report}; deployed: {deployed}"
        name = f"**{packet.__name__}**" if issubclass(packet, Request) else packet.__name__
        lines.append(
            f"| {name} | {packet.METHODS.report:#04x} | {packet.METHODS.deployed:#04x} | {payload} |"
        )
    return "\n".join(lines) + "\n"


def records() -> str:
    lines = ["| record | fields |", "|---|---|"]
    lines += [f"| {record.__name__} | {_payload(record, Dialect.REPORT)} |" for record in (Message, Queue)]
    return "\n".join(lines) + "\n"


def up_to_date(page: str) -> str:
    """Return the page with current generated parts."""
    parts = {"packets": packets, "records": records}
    return _GENERATED.sub(lambda found: found[1] + parts[found[2]]() + found[3], page)


def _payload(record: type[Packet] | type[Record], dialect: Dialect) -> str:
    fields = [_field(field) for field in fields_of(record, dialect) if field.present]
    return ", ".join(fields) or "-"


def _field(field: Field) -> str:
    return f"{field.name} {_kind(field.kind)}"


def _kind(kind: Any) -> str:
    if isinstance(kind, Number):
        return kind.name
    if isinstance(kind, ListOf):
        return f"list of {_kind(kind.item)}"
    if isinstance(kind, Alone):
        return f"one {_kind(kind.item)}"
    return "String" if kind is str else str(kind.__name__)


if __name__ == "__main__":
    PAGE.write_text(up_to_date(PAGE.read_text("utf-8")), "utf-8")
