"""Health: producers, consumers and brokers that are active, and those silent for too long."""

from typing import Literal

import msgspec

from nuncius.doors.http.api.operations import operation
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.v1.model import Limit, Time


class Actor(msgspec.Struct):
    kind: Literal["producer", "consumer", "broker"]
    id: int
    last_active: Time
    active: bool


class Health(msgspec.Struct):
    """Actors, the longest silent first. `inactive` counts all inactive ones, shown here or not."""

    inactive_after: float
    inactive: int
    actors: list[Actor]


class Which(msgspec.Struct):
    inactive: bool = False
    limit: Limit = 1000


@operation("GET", "/v1/health")
async def get_health(desk: Desk, query: Which) -> Health:
    """Producers, consumers and brokers, and when each was last active."""
    actors = desk.broker.actors
    found = await actors.health(only_inactive=query.inactive, limit=query.limit)
    return Health(
        actors.inactive_after,
        await actors.count_inactive(),
        [Actor(each.kind, each.actor_id, each.last_active, each.is_active) for each in found],  # type: ignore[arg-type]
    )


OPERATIONS = (get_health,)
