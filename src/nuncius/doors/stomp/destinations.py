"""Destinations: `/queue/NAME` is a queue, `/topic/NAME` and a bare name are a topic."""

from dataclasses import dataclass
from functools import lru_cache

from nuncius.broker.limits import check_name
from nuncius.doors.stomp.errors import Refused

QUEUE, TOPIC = "/queue/", "/topic/"


@dataclass(frozen=True, slots=True)
class Destination:
    name: str
    is_queue: bool


@lru_cache(maxsize=4096)  # senders name the same few again and again
def parse(text: str) -> Destination:
    if text.startswith(QUEUE):
        found = Destination(text.removeprefix(QUEUE), is_queue=True)
    elif text.startswith(TOPIC) or not text.startswith("/"):
        found = Destination(text.removeprefix(TOPIC), is_queue=False)
    else:
        raise Refused("a destination is /queue/NAME, /topic/NAME or the name of a topic")
    check_name("queue" if found.is_queue else "topic", found.name)
    return found
