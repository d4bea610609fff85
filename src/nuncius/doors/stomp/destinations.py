"""Destinations: `/queue/NAME` is a queue, `/topic/NAME` and a bare name are a topic.

Other servers read `*`, `**`, `#` and `>` as patterns if they are a whole part of a name, between dots or
slashes. A client that uses them does not mean a topic of that name, so it gets an error.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from nuncius.broker.limits import check_name
from nuncius.doors.stomp.errors import StompRefusal

QUEUE, TOPIC = "/queue/", "/topic/"
_PARTS = re.compile(r"[./]")
_PATTERNS = frozenset(("*", "**", "#", ">"))


@dataclass(frozen=True, slots=True)
class Destination:
    name: str
    is_queue: bool


@lru_cache(maxsize=4096)  # senders use the same few
def parse(text: str) -> Destination:
    """Parse a destination of STOMP."""
    found = parse_literal(text)
    for part in _PARTS.split(found.name):
        if part in _PATTERNS:
            raise StompRefusal(
                f"patterns such as {part!r} are not supported: a destination is one queue or topic"
            )
    return found


@lru_cache(maxsize=4096)
def parse_literal(text: str) -> Destination:
    """Parse a destination of a dialect that has no patterns."""
    if text.startswith(QUEUE):
        found = Destination(text.removeprefix(QUEUE), is_queue=True)
    elif text.startswith(TOPIC) or not text.startswith("/"):
        found = Destination(text.removeprefix(TOPIC), is_queue=False)
    else:
        raise StompRefusal("a destination is /queue/NAME, /topic/NAME or the name of a topic")
    check_name("queue" if found.is_queue else "topic", found.name)
    return found
