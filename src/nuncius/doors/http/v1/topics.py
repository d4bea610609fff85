"""Topics: managing them, publishing, and reading without a subscription."""

from typing import Annotated, Literal

import msgspec

from nuncius.broker.errors import InvalidInput
from nuncius.broker.limits import decode_headers, encode_headers
from nuncius.broker.model import FetchedEntries, Retention, TopicInfo
from nuncius.doors.http.api.operations import Raw, operation
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.errors import Failed
from nuncius.doors.http.exchange import Exchange
from nuncius.doors.http.v1.model import (
    INT64,
    LIMITS,
    Key,
    Limit,
    Listing,
    Name,
    NewMessage,
    NewMessages,
    Number,
    Offset,
    PublishedBatch,
    Removed,
    Time,
    V1Messages,
    V1Published,
    Wait,
    columns,
    messages_of,
    spots,
)

OCTETS = "application/octet-stream"
MAX_TYPE = 255

Positive = Annotated[int, msgspec.Meta(ge=1, le=INT64)]
Partitions = Annotated[int, msgspec.Meta(ge=1, le=LIMITS.max_partitions)]


class RetentionRule(msgspec.Struct, forbid_unknown_fields=True):
    """How long messages are kept: for ever, until all subscribers have them, for some seconds, or up to some
    bytes per partition."""

    mode: Literal["forever", "subscribers", "time", "size"] = "forever"
    seconds: Positive | None = None
    bytes: Positive | None = None

    def checked(self) -> Retention:
        if (self.mode == "time") != (self.seconds is not None) or (self.mode == "size") != (
            self.bytes is not None
        ):
            raise InvalidInput("retention by time has seconds, retention by size has bytes, others neither")
        return Retention(self.mode, self.seconds, self.bytes)


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    name: Name
    partitions: Partitions = 1
    retention: RetentionRule | None = None


class V1Partition(msgspec.Struct):
    partition: int
    first_offset: int
    next_offset: int


class V1Topic(msgspec.Struct):
    name: str
    created_at: Time
    retention: RetentionRule
    subscriptions: int
    messages: int
    partitions: list[V1Partition]


class V1Topics(msgspec.Struct):
    """`next` is the value of `after` for the next page; null at the end of the list."""

    topics: list[V1Topic]
    next: str | None


class V1Growth(msgspec.Struct, forbid_unknown_fields=True):
    partitions: Partitions


class PublishOptions(msgspec.Struct):
    partition: Number | None = None


class RawOptions(msgspec.Struct):
    partition: Number | None = None
    key: Key | None = None


class From(msgspec.Struct):
    offset: Offset = 0
    limit: Limit = 100
    wait: Wait = 0


@operation("GET", "/v1/topics")
async def list_topics(desk: Desk, query: Listing) -> V1Topics:
    """All topics, in the order of their names."""
    page = await desk.pages.topics(query.after, query.limit)
    return V1Topics([_topic(info) for info in page.rows], page.next)


@operation("POST", "/v1/topics", status=201)
async def create_topic(desk: Desk, body: NewTopic, exchange: Exchange) -> V1Topic:
    """Create a topic."""
    retention = None if body.retention is None else body.retention.checked()
    await desk.broker.topics.create(body.name, body.partitions, caller=exchange.caller)
    if retention is not None:
        await desk.broker.topics.set_retention(body.name, retention, caller=exchange.caller)
    return await _find(desk, body.name)


@operation("GET", "/v1/topics/{topic}")
async def get_topic(desk: Desk, topic: Name) -> V1Topic:
    """A topic and the offsets of its partitions."""
    return await _find(desk, topic)


@operation("DELETE", "/v1/topics/{topic}", status=204)
async def delete_topic(desk: Desk, topic: Name, exchange: Exchange) -> None:
    """Delete a topic, its messages and its subscriptions."""
    await desk.broker.topics.delete(topic, caller=exchange.caller)


@operation("PUT", "/v1/topics/{topic}/retention")
async def set_retention(desk: Desk, topic: Name, body: RetentionRule, exchange: Exchange) -> V1Topic:
    """Set how long messages of a topic are kept."""
    await desk.broker.topics.set_retention(topic, body.checked(), caller=exchange.caller)
    return await _find(desk, topic)


@operation("PUT", "/v1/topics/{topic}/partitions")
async def grow_topic(desk: Desk, topic: Name, body: V1Growth, exchange: Exchange) -> V1Topic:
    """Add partitions up to this number. The number cannot be reduced."""
    now = len((await desk.broker.topics.existing(topic)).partition_ids)
    if body.partitions < now:
        raise InvalidInput(f"topic {topic!r} has {now} partitions, and cannot have fewer")
    await desk.broker.topics.grow(topic, body.partitions, caller=exchange.caller)
    return await _find(desk, topic)


@operation("POST", "/v1/topics/{topic}/purge")
async def purge_topic(desk: Desk, topic: Name, exchange: Exchange) -> Removed:
    """Remove all messages of a topic."""
    return Removed(await desk.broker.topics.purge(topic, caller=exchange.caller))


@operation("POST", "/v1/topics/{topic}/messages", status=201)
async def publish(
    desk: Desk, topic: Name, query: PublishOptions, body: NewMessage, key: str | None, exchange: Exchange
) -> V1Published:
    """Publish a message. The topic is created if there is none of that name."""
    publisher = None if key is None else await desk.identity(key, (body, query), "topic", topic)
    placed = await desk.publish(topic, *columns((body,)), query.partition, publisher, caller=exchange.caller)
    return V1Published(spots(placed, 1)[0])


@operation("POST", "/v1/topics/{topic}/messages/batch", status=201)
async def publish_batch(
    desk: Desk, topic: Name, body: NewMessages, key: str | None, exchange: Exchange
) -> PublishedBatch:
    """Publish messages together, all or none."""
    content = (*body.messages, body.partition)
    publisher = None if key is None else await desk.identity(key, content, "topic", topic)
    placed = await desk.publish(
        topic, *columns(body.messages), body.partition, publisher, caller=exchange.caller
    )
    return PublishedBatch(spots(placed, len(body.messages)))


@operation("POST", "/v1/topics/{topic}/messages/raw", status=201)
async def publish_raw(
    desk: Desk, topic: Name, query: RawOptions, raw: bytes, key: str | None, exchange: Exchange
) -> V1Published:
    """Publish the request's body as one message. Its content type is kept with it."""
    headers = raw_headers(exchange)
    publisher = None if key is None else await desk.identity(key, (raw, query, headers), "topic", topic)
    keys = None if query.key is None else (query.key,)
    placed = await desk.publish(
        topic, (raw,), keys, headers, query.partition, publisher, caller=exchange.caller
    )
    return V1Published(spots(placed, 1)[0])


@operation("GET", "/v1/topics/{topic}/partitions/{partition}/messages")
async def read_partition(
    desk: Desk, topic: Name, partition: Number, query: From, exchange: Exchange
) -> V1Messages:
    """Messages of a partition from an offset on."""
    found = await desk.broker.topics.existing(topic)
    reading = desk.broker.topics.fetch(
        found,
        partition,
        query.offset,
        query.limit,
        wait=query.wait,
        caller=exchange.caller,
        gate=exchange.replies,
    )
    entries = await exchange.while_connected(reading) if query.wait else await reading
    return V1Messages([] if entries is None else list(messages_of(partition, entries)))


@operation("GET", "/v1/topics/{topic}/partitions/{partition}/messages/{offset}/raw")
async def read_raw(desk: Desk, topic: Name, partition: Number, offset: Offset, exchange: Exchange) -> Raw:
    """One message, unmodified, with the content type that it was published with."""
    found = await desk.broker.topics.existing(topic)
    entries = await desk.broker.topics.fetch(
        found, partition, offset, 1, caller=exchange.caller, gate=exchange.replies
    )
    if entries is None or entries.first_offset != offset:
        raise Failed(404, "not_found", f"partition {partition} has no message {offset}")
    return Raw(entries.bodies[0], content_type(entries))


def raw_headers(exchange: Exchange) -> tuple[str | None] | None:
    kind = exchange.header(b"content-type")
    if kind is None or len(kind) > MAX_TYPE or not (kind.isascii() and kind.isprintable()):
        return None
    return (encode_headers({"content-type": kind}),)


def content_type(entries: FetchedEntries) -> str:
    text = entries.headers and entries.headers[0]
    kind = decode_headers(text).get("content-type", OCTETS) if text else OCTETS
    return kind if kind.isascii() and kind.isprintable() else OCTETS


async def _find(desk: Desk, name: str) -> V1Topic:
    found = await desk.broker.topics.find([name])
    if not found:
        raise Failed(404, "not_found", f"there is no topic {name!r}")
    return _topic(found[0])


def _topic(info: TopicInfo) -> V1Topic:
    rule = RetentionRule(info.retention.mode, info.retention.seconds, info.retention.bytes)  # type: ignore[arg-type]
    partitions = [V1Partition(p.partition, p.first_offset, p.next_offset) for p in info.partitions]
    return V1Topic(
        info.name,
        info.created_at,
        rule,
        info.subscriptions,
        sum(each.next_offset - each.first_offset for each in partitions),
        partitions,
    )


OPERATIONS = (
    list_topics,
    create_topic,
    get_topic,
    delete_topic,
    set_retention,
    grow_topic,
    purge_topic,
    publish,
    publish_batch,
    publish_raw,
    read_partition,
    read_raw,
)
