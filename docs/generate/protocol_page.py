"""Write the tables of docs/protocol.md from the packets, between the two marks in the page.

Run it with `.venv/bin/python docs/generate/protocol_page.py`. A test fails if the page is out of date.
"""

import inspect
import re
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from nuncius.wire import packets
from nuncius.wire.packets import ANSWERS, REQUESTS, ErrorCode, Packet

PAGE = Path(__file__).parents[1] / "protocol.md"
BEGIN, END = "<!-- begin: made from packets.py -->", "<!-- end -->"

# The group of a packet is the first digit of its id.
GROUPS = (
    ("Connection", range(0x10)),
    ("Topics", range(0x10, 0x20)),
    ("Subscriptions and counts", range(0x20, 0x30)),
    ("Queues and clients", range(0x30, 0x50)),
)
STATES = (
    packets.TopicState,
    packets.SubscriptionState,
    packets.Message,
    packets.LeasedMessage,
    packets.QueueState,
)

# The answer to a request that succeeds; any request may get an Error instead.
ANSWERED_WITH: dict[type[Packet], type[Packet] | None] = {
    packets.Hello: packets.Welcome,
    packets.Ping: packets.Pong,
    packets.Status: packets.Report,
    packets.Publish: packets.Published,
    packets.Fetch: packets.Entries,
    packets.CreateTopic: packets.Done,
    packets.DeleteTopic: packets.Done,
    packets.PurgeTopic: packets.Number,
    packets.SetRetention: packets.Done,
    packets.GrowTopic: packets.Done,
    packets.ListTopics: packets.Topics,
    packets.Subscribe: packets.Subscribed,
    packets.Unsubscribe: packets.Done,
    packets.Attach: packets.Done,
    packets.Credit: None,
    packets.Detach: packets.Done,
    packets.Confirm: packets.Done,
    packets.ListSubscriptions: packets.Subscriptions,
    packets.LastCount: packets.Number,
    packets.Put: packets.PutDone,
    packets.Take: packets.Messages,
    packets.Lease: packets.Leased,
    packets.Settle: packets.Done,
    packets.Release: packets.Done,
    packets.Ask: packets.Messages,
    packets.Browse: packets.Messages,
    packets.CreateQueue: packets.Number,
    packets.DeleteQueue: packets.Done,
    packets.PurgeQueue: packets.Number,
    packets.ListQueues: packets.Queues,
    packets.Withdraw: None,
    packets.FindClient: packets.Number,
    packets.Identify: packets.Number,
    packets.Forget: packets.Done,
}


def tables() -> str:
    """Return all tables as Markdown."""
    parts = []
    for title, ids in GROUPS:
        members = sorted((p for p in REQUESTS + ANSWERS if _id(p) in ids), key=_id)
        parts += [
            f"### {title}",
            "| id | packet | fields after the request id | answer | |",
            "|---|---|---|---|---|",
        ]
        parts += [_row(packet) for packet in members] + [""]
    parts += ["### What is listed inside packets", "| | fields | |", "|---|---|---|"]
    parts += [f"| {state.__name__} | {_fields(state)} | {_meaning(state)} |" for state in STATES]
    parts += ["", "### Errors", "| code | name | |", "|---|---|---|"]
    parts += [f"| {code} | {name} | {meaning} |" for code, name, meaning in errors()]
    return "\n".join(parts) + "\n"


def errors() -> list[tuple[int, str, str]]:
    """Return codes, names and meanings; the meaning is the comment beside each code."""
    lines = re.findall(r"^    (\w+) = (\d+)  # (.+)$", inspect.getsource(ErrorCode), re.MULTILINE)
    return [(int(code), name, meaning) for name, code, meaning in lines]


def up_to_date(page: str) -> str:
    """Return the page with current tables between its marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{tables()}{END}{after}"


def _id(packet: type[Packet]) -> int:
    tag = packet.__struct_config__.tag
    assert isinstance(tag, int)
    return tag


def _row(packet: type[Packet]) -> str:
    answer = ANSWERED_WITH.get(packet)
    says = answer.__name__ if answer else "none" if packet in ANSWERED_WITH else ""
    return f"| `0x{_id(packet):02x}` | {packet.__name__} | {_fields(packet)} | {says} | {_meaning(packet)} |"


def _fields(struct: type[msgspec.Struct]) -> str:
    types = get_type_hints(struct)
    shown = []
    for field in msgspec.structs.fields(struct):
        if field.name == "request":
            continue
        text = f"{field.name}: {_type(types[field.name])}"
        if not field.required:
            text += f" = {_default(field.default)}"
        shown.append(f"`{text}`")
    return ", ".join(shown)


def _default(value: object) -> str:
    if value is None:
        return "nil"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _type(kind: Any) -> str:
    """Return the MessagePack name of a type."""
    if get_origin(kind) is list:
        return f"[{_type(get_args(kind)[0])}]"
    if get_origin(kind) is tuple:
        return f"({', '.join(map(_type, get_args(kind)))})"
    if get_origin(kind) is UnionType or isinstance(kind, UnionType):
        return " or ".join(map(_type, get_args(kind)))
    return {int: "int", str: "str", bytes: "bin", bool: "bool", type(None): "nil"}.get(kind) or kind.__name__


def _meaning(struct: type[msgspec.Struct]) -> str:
    text = struct.__doc__ if "__doc__" in vars(struct) else None
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(up_to_date(PAGE.read_text("utf-8")), "utf-8")
