"""Subscriptions: durable positions in a topic; reading from them and moving them."""

import asyncio
import contextlib
from datetime import UTC
from typing import Annotated, Literal

import msgspec

from nuncius.broker import future
from nuncius.broker.errors import InvalidInput, NoSuchSubscription
from nuncius.broker.model import SubscriptionInfo
from nuncius.doors.http import events
from nuncius.doors.http.api.operations import operation
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.exchange import Exchange
from nuncius.doors.http.v1.model import (
    Limit,
    Listing,
    Name,
    Number,
    Offset,
    Time,
    V1Messages,
    Wait,
    messages_in,
)


class NewSubscription(msgspec.Struct, forbid_unknown_fields=True):
    """`holds_retention`: messages that it has not confirmed are kept, whatever the topic's retention says."""

    name: Name
    start: Literal["latest", "earliest"] = "latest"
    holds_retention: bool = False


class Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything below `position` is confirmed."""

    partition: Number
    position: Offset


class V1Subscription(msgspec.Struct):
    topic: str
    name: str
    holds_retention: bool
    created_at: Time
    confirmed_at: Time | None
    lag: int


class V1Subscriptions(msgspec.Struct):
    """`next` is the value of `after` for the next page; null at the end of the list."""

    subscriptions: list[V1Subscription]
    next: str | None


class SubscriptionPlace(msgspec.Struct):
    subscription: V1Subscription
    positions: list[Position]


class V1Positions(msgspec.Struct, forbid_unknown_fields=True):
    positions: Annotated[list[Position], msgspec.Meta(min_length=1, max_length=1000)]


class Target(msgspec.Struct, forbid_unknown_fields=True):
    """The new position: one of these."""

    to: Literal["earliest", "latest"] | None = None
    time: Time | None = None
    positions: Annotated[list[Position], msgspec.Meta(min_length=1, max_length=1000)] | None = None


class ReadQuery(msgspec.Struct):
    limit: Limit = 100
    wait: Wait = 0


@operation("GET", "/v1/topics/{topic}/subscriptions")
async def list_subscriptions(desk: Desk, topic: Name, query: Listing) -> V1Subscriptions:
    """The subscriptions of a topic and their lag, in the order of their names."""
    await desk.broker.topics.existing(topic)
    page = await desk.pages.subscriptions(topic, query.after, query.limit)
    return V1Subscriptions([_subscription(info) for info in page.rows], page.next)


@operation("POST", "/v1/topics/{topic}/subscriptions", status=201)
async def subscribe(desk: Desk, topic: Name, body: NewSubscription) -> SubscriptionPlace:
    """Subscribe to a topic, or return the existing subscription. The topic is created if there is none."""
    await desk.broker.subscriptions.subscribe(
        topic, body.name, start=body.start, holds_retention=body.holds_retention
    )
    return await _place(desk, topic, body.name)


@operation("GET", "/v1/topics/{topic}/subscriptions/{subscription}")
async def get_subscription(desk: Desk, topic: Name, subscription: Name) -> SubscriptionPlace:
    """A subscription and its position in each partition."""
    return await _place(desk, topic, subscription)


@operation("DELETE", "/v1/topics/{topic}/subscriptions/{subscription}", status=204)
async def unsubscribe(desk: Desk, topic: Name, subscription: Name) -> None:
    """End a subscription."""
    await desk.broker.subscriptions.unsubscribe(topic, subscription)


@operation("GET", "/v1/topics/{topic}/subscriptions/{subscription}/messages")
async def read_subscription(
    desk: Desk, topic: Name, subscription: Name, query: ReadQuery, exchange: Exchange
) -> V1Messages:
    """Messages that are not confirmed yet. Reading does not move the subscription; confirming does."""
    work = _read(desk, topic, subscription, query, exchange)
    return await exchange.while_connected(work) if query.wait else await work


async def _read(desk: Desk, topic: str, subscription: str, page: ReadQuery, exchange: Exchange) -> V1Messages:
    cursor = await desk.broker.subscriptions.cursor(await desk.broker.subscriptions.find(topic, subscription))
    async with exchange.replies:  # without a deadline: there is no false "nothing"
        found = await cursor.look_for(page.limit, desk.broker.limits.max_body, exchange.caller)
    if not found and page.wait:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(page.wait):
                found = [await cursor.next(page.limit, exchange.caller, exchange.replies)]
    return V1Messages(messages_in(found))


@operation("POST", "/v1/topics/{topic}/subscriptions/{subscription}/confirm", status=204)
async def confirm(desk: Desk, topic: Name, subscription: Name, body: V1Positions, exchange: Exchange) -> None:
    """Confirm everything below these positions. Positions only go forward."""
    found = await desk.broker.subscriptions.find(topic, subscription)
    confirming = []
    for each in body.positions:
        found.topic.partition_id(each.partition)  # all exist, or none is confirmed
    for each in body.positions:
        confirmed, done = future.new()
        desk.broker.positions.confirm_soon(found, each.partition, each.position, done, caller=exchange.caller)
        confirming.append(confirmed)
    for result in await asyncio.gather(*confirming, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


@operation("POST", "/v1/topics/{topic}/subscriptions/{subscription}/seek")
async def seek(desk: Desk, topic: Name, subscription: Name, body: Target) -> SubscriptionPlace:
    """Move a subscription to the beginning, to the end, to the first messages since a time, or to positions,
    forward or back."""
    given = [each for each in (body.to, body.time, body.positions) if each is not None]
    if len(given) != 1:
        raise InvalidInput("say where to go by one of 'to', 'time' and 'positions'")
    found = await desk.broker.subscriptions.find(topic, subscription)
    if body.positions is not None:
        places = {each.partition: each.position for each in body.positions}
        await desk.broker.positions.seek(found, places)
    elif body.time is not None:
        time = body.time if body.time.tzinfo is not None else body.time.replace(tzinfo=UTC)
        await desk.broker.positions.seek_time(found, time)
    elif body.to == "earliest":
        await desk.broker.positions.seek_earliest(found)
    else:
        await desk.broker.positions.seek_latest(found)
    return await _place(desk, topic, subscription)


@operation("GET", "/v1/topics/{topic}/subscriptions/{subscription}/events", streams="text/event-stream")
async def read_events(desk: Desk, topic: Name, subscription: Name, exchange: Exchange) -> None:
    """Messages as server-sent events, as they arrive. The id of an event is the position behind it: a browser
    that reconnects sends it in Last-Event-ID and continues there. The client confirms separately."""
    found = await desk.broker.subscriptions.find(topic, subscription)
    cursor = await desk.broker.subscriptions.cursor(found)
    confirmed = {partition: position for partition, (_, position) in cursor.places.items()}
    last = exchange.header(b"last-event-id")
    if last:
        events.go_to(cursor, last)
    with desk.broker.consumers.of_subscription(found.subscription_id):
        await events.stream(exchange, cursor, confirmed)


async def _place(desk: Desk, topic: str, name: str) -> SubscriptionPlace:
    found = await desk.broker.subscriptions.look_up(topic, name)
    positions = await desk.broker.positions.of(found)
    infos = await desk.broker.subscriptions.list(topic, name)
    if not infos:
        raise NoSuchSubscription(f"{name!r} is not subscribed to {topic!r}")
    return SubscriptionPlace(_subscription(infos[0]), [Position(*each) for each in positions.items()])


def _subscription(info: SubscriptionInfo) -> V1Subscription:
    return V1Subscription(
        info.topic, info.subscriber, info.holds_retention, info.created_at, info.confirmed_at, info.lag
    )


OPERATIONS = (
    list_subscriptions,
    subscribe,
    get_subscription,
    unsubscribe,
    read_subscription,
    confirm,
    seek,
    read_events,
)
