"""What a ring's node has noted about its leases. Which keys they are of only the node itself knows."""

from datetime import UTC, datetime

import msgspec

from nuncius.broker import Broker


async def leases_until(broker: Broker) -> datetime | None:
    """By when every lease of a key of this store is over; None if none was ever given."""
    rows = await broker.store.query("select note::text from nuncius.ring_notes where name = 'leases until'")
    until = msgspec.json.decode(rows[0][0], type=float) if rows else 0.0
    return datetime.fromtimestamp(until, UTC) if until else None


def in_words(until: datetime | None, now: datetime) -> str:
    if until is None or until <= now:
        return "No lease of its keys is out."
    return f"Leases of its keys may be out until {until:%Y-%m-%d %H:%M:%S} UTC."
