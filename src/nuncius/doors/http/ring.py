"""The ring of keys as this node sees it: the nodes' places, and the hot keys.

Each worker grants leases and has a cache of its own; the answer combines them.
"""

import msgspec

from nuncius.broker import Broker
from nuncius.broker.observe.counters_model import RingState
from nuncius.doors.http.api.operations import operation
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.errors import Failed

MOST_KEYS = 100


class RingPlaceSeen(msgspec.Struct):
    """A node's place: it owns the keys whose hash is at this place, or between the previous place and this
    one."""

    place: int
    node: str


class RingSeen(msgspec.Struct):
    """`leases` is the number of this node's keys that other nodes hold a lease of, `hot_keys` some of them;
    `cached_bytes` is the size of this node's cache of other nodes' keys."""

    node: str
    version: int
    places: list[RingPlaceSeen]
    leases: int
    hot_keys: list[str]
    cached_bytes: int


def take_part(broker: Broker) -> None:
    """Let the other workers of the node ask this one for its part."""
    counters = broker.counters
    broker.siblings.answer("ring", lambda: [] if counters.ring is None else [counters.ring()])


@operation("GET", "/v1/ring")
async def get_ring(desk: Desk) -> RingSeen:
    """The ring that this node's Tribbler listener is part of."""
    heard = await desk.broker.siblings.ask("ring", kind=list[RingState])
    states = [state for said in heard.said.values() for state in said]
    if not states:
        raise Failed(404, "not_found", "this node has no Tribbler door")
    latest = max(states, key=lambda each: each.version)
    hot_keys = list(dict.fromkeys(key for state in states for key in state.hot_keys))
    return RingSeen(
        latest.node,
        latest.version,
        [RingPlaceSeen(place, node) for place, node in sorted(latest.places)],
        len(hot_keys),
        [key.encode("utf-8", "replace").decode() for key in hot_keys[:MOST_KEYS]],
        sum(state.cached_bytes for state in states),
    )


OPERATIONS = (get_ring,)
