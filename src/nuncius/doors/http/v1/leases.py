"""Leases: messages of queues that come again unless the client settles them in time."""

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


class LeasedMessage(QueueMessage, kw_only=True):
    """A message in hand. `lease` stands for this delivery, `attempts` is how often it was delivered before,
    `origin` the id that stays the same over all deliveries."""

    lease: int
    attempts: int
    origin: int


class LeasedMessages(msgspec.Struct):
    messages: list[LeasedMessage]


class Settling(msgspec.Struct, forbid_unknown_fields=True):
    leases: LeaseIds


class Releasing(msgspec.Struct, forbid_unknown_fields=True):
    """Without a reason the messages come again at once, as if nobody had had them."""

    leases: LeaseIds
    reason: str | None = None


class Extending(msgspec.Struct, forbid_unknown_fields=True):
    leases: LeaseIds
    seconds: Seconds = 30


@operation("POST", "/v1/queues/{queue}/lease")
async def lease_messages(desk: Desk, queue: Name, body: Leasing, exchange: Exchange) -> LeasedMessages:
    """Take messages that come again unless they are settled in time. Those with the highest priority come
    first."""
    found = await find_queue(desk, queue)
    receiver = await client_id(desk, body.receiver)
    leasing = desk.broker.timed_leases.lease(
        found.queue_id, receiver, seconds=body.seconds, limit=body.limit, wait=body.wait
    )
    leased = await exchange.while_connected(leasing) if body.wait else await leasing
    return LeasedMessages([_message(each) for each in leased])


@operation("POST", "/v1/queues/{queue}/settle", status=204)
async def settle_leases(desk: Desk, queue: Name, body: Settling) -> None:
    """The client is done with these messages. All of them are gone for good or, when it is too late for one,
    nothing changes."""
    found = await find_queue(desk, queue)
    await desk.broker.timed_leases.settle(found.queue_id, body.leases)


@operation("POST", "/v1/queues/{queue}/release", status=204)
async def release_leases(desk: Desk, queue: Name, body: Releasing) -> None:
    """The client could not take these messages. They come again after a while, or are dead letters after too
    many attempts."""
    found = await find_queue(desk, queue)
    await desk.broker.timed_leases.release(found.queue_id, body.leases, reason=body.reason)


@operation("POST", "/v1/queues/{queue}/extend", status=204)
async def extend_leases(desk: Desk, queue: Name, body: Extending) -> None:
    """The client has these messages for so many seconds from now on."""
    found = await find_queue(desk, queue)
    await desk.broker.timed_leases.extend(found.queue_id, body.leases, body.seconds)


def _message(leased: Leased) -> LeasedMessage:
    return LeasedMessage(
        **msgspec.structs.asdict(queue_message(leased.message)),
        lease=leased.lease_id,
        attempts=leased.attempts,
        origin=leased.origin,
    )


OPERATIONS = (lease_messages, settle_leases, release_leases, extend_leases)
