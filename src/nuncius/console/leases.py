"""Leases as a ring's node has recorded them. Only the node itself knows their keys."""

from datetime import UTC, datetime

import msgspec

from nuncius.broker import Broker
from nuncius.broker.observe.facts_cluster import RING_NOTE


async def leases_until(broker: Broker) -> datetime | None:
    """Return the time by which every lease of this store's keys has expired; None if none was granted."""
    rows = await broker.store.query(RING_NOTE, "leases until")
    until = msgspec.json.decode(rows[0][0], type=float) if rows else 0.0
    return datetime.fromtimestamp(until, UTC) if until else None


def in_words(until: datetime | None, now: datetime) -> str:
    if until is None or until <= now:
        return "No lease of its keys is out."
    return f"Leases of its keys may be out until {until:%Y-%m-%d %H:%M:%S} UTC."
