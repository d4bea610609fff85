"""The packets of the native protocol, declared once.

Like Telesto's packets, each has a method id, and a request id that its answer repeats. This table defines the
payloads completely: encoding, decoding and the tables in docs/protocol.md follow from it. A payload is the
MessagePack array [method id, field, field, ...] in the order given here; fields with a default may be missing
at the end, so fields can be added.

Odd ids go from client to node, even ids from node to client. Headers are JSON text, an object of strings.
Times are microseconds since 1970. Columns instead of rows: lists of one packet that stand for the same
messages are equally long.
"""

# ruff: noqa: F403  (a packet is named where it is declared, and nowhere else)
from nuncius.wire.connection import *
from nuncius.wire.connection import Packet
from nuncius.wire.queues import *
from nuncius.wire.topics import *


def _with_tags(parity: int) -> tuple[type[Packet], ...]:
    """Return the packets whose method ids are odd (1) or even (0), by id."""
    found = {int(each.__struct_config__.tag or 0): each for each in Packet.__subclasses__()}
    return tuple(found[tag] for tag in sorted(found) if tag % 2 == parity)


REQUESTS, ANSWERS = _with_tags(1), _with_tags(0)
