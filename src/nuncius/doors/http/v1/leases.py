"""Leases: messages of queues that are redelivered unless the client settles them in time."""

from typing import Annotated

import msgspec

from nuncius.broker.model import Leased
from nuncius.doors.http.api.operations import operation
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.exchange import Exchange
from nuncius.doors.http.v1.model import INT64, MAX_MESSAGES, Limit, Name, Wait
from nuncius.doors.http.v1.queues import QueueMessage, client_id, find_queue, queue_message

MAX_SECONDS = 3600

Seconds = Annotated[
    float, msgspec.Meta(gt=0, le=MAX_SECONDS, description="How long the client may work on them.")
]
LeaseIds = Annotated[
    list[Annotated[int, msgspec.Meta(ge=1, le=INT64)]], msgspec.Meta(min_length=1, max_length=MAX_MESSAGES)
]


class Leasing(msgspec.Struct, forbid_unknown_fields=True):
    limit: Limit = 1
    wait: Wait = 0
    receiver: Name | None = None
    seconds: Seconds = 30


class V1LeasedMessage(QueueMessage, kw_only=True):
    """A leased message. `lease` identifies this delivery, `attempts` is how often it was delivered before,
    `origin` is an id that stays the same over all deliveries."""

    lease: int
    attempts: int
    origin: int


class LeasedMessages(msgspec.Struct):
    messages: list[V1LeasedMessage]


class Settling(msgspec.Struct, forbid_unknown_fields=True):
    leases: LeaseIds


class V1Releasing(msgspec.Struct, forbid_unknown_fields=True):
    """Without a reason the messages are redelivered at once, and this delivery is not counted."""

    leases: LeaseIds
    reason: str | None = None


class Extending(msgspec.Struct, forbid_unknown_fields=True):
    leases: LeaseIds
    seconds: Seconds = 30


@operation("POST", "/v1/queues/{queue}/lease")
async def lease_messages(desk: Desk, queue: Name, body: Leasing, exchange: Exchange) -> LeasedMessages:
    """Lease messages, which are redelivered unless they are settled in time. Those with the highest priority
    come first."""
    found = await find_queue(desk, queue)
    receiver = await client_id(desk, body.receiver)
    leasing = desk.broker.timed_leases.lease(
        found.queue_id,
        receiver,
        seconds=body.seconds,
        limit=body.limit,
        wait=body.wait,
        caller=exchange.caller,
    )
    with desk.broker.consumers.of_queue(found.queue_id):
        leased = await exchange.while_connected(leasing) if body.wait else await leasing
    return LeasedMessages([_message(each) for each in leased])


@operation("POST", "/v1/queues/{queue}/settle", status=204)
async def settle_leases(desk: Desk, queue: Name, body: Settling, exchange: Exchange) -> None:
    """Remove leased messages for good: the client is done with them. If it is too late for one of them,
    nothing changes."""
    found = await find_queue(desk, queue)
    await desk.broker.timed_leases.settle(found.queue_id, body.leases, caller=exchange.caller)


@operation("POST", "/v1/queues/{queue}/release", status=204)
async def release_leases(desk: Desk, queue: Name, body: V1Releasing) -> None:
    """Return messages that the client could not process. They are redelivered after a while, or become dead
    letters after too many attempts."""
    found = await find_queue(desk, queue)
    await desk.broker.timed_leases.release(found.queue_id, body.leases, reason=body.reason)


@operation("POST", "/v1/queues/{queue}/extend", status=204)
async def extend_leases(desk: Desk, queue: Name, body: Extending) -> None:
    """Extend leases: they end this many seconds from now."""
    found = await find_queue(desk, queue)
    await desk.broker.timed_leases.extend(found.queue_id, body.leases, body.seconds)


def _message(leased: Leased) -> V1LeasedMessage:
    return V1LeasedMessage(
        **msgspec.structs.asdict(queue_message(leased.message)),
        lease=leased.lease_id,
        attempts=leased.attempts,
        origin=leased.origin,
    )


OPERATIONS = (lease_messages, settle_leases, release_leases, extend_leases)
