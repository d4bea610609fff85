"""Requests of the native protocol about topics and subscriptions, and about the node itself."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from nuncius.broker.errors import InvalidInput
from nuncius.broker.model import Retention
from nuncius.doors.native.convert import micros, seconds, wire_entries
from nuncius.wire import packets
from nuncius.wire.packets import Packet

if TYPE_CHECKING:
    from nuncius.doors.native.session import NativeSession as Session


async def ping(_: "Session", packet: packets.Ping) -> Packet:
    return packets.Pong(packet.request)


async def status(session: "Session", packet: packets.Status) -> Packet:
    facts = await session.broker.status()
    return packets.Report(packet.request, msgspec.json.encode(facts).decode())


async def fetch(session: "Session", packet: packets.Fetch) -> Packet:
    topics = session.broker.topics
    if packet.limit < 1:
        raise InvalidInput("fetch at least one entry")
    topic = topics.names.known(packet.topic) or await topics.existing(packet.topic)
    wait = seconds(packet.wait_ms)
    entries = await topics.fetch(
        topic,
        packet.partition,
        packet.position,
        packet.limit,
        wait=wait,
        caller=session.caller,
        gate=session.replies,
    )
    if entries is None:
        return packets.Entries(packet.request, packet.partition, packet.position, [], [])
    return wire_entries(packet.request, packet.partition, entries)


async def create_topic(session: "Session", packet: packets.CreateTopic) -> Packet:
    session.may_write()
    await session.broker.topics.create(packet.topic, packet.partitions, caller=session.caller)
    return packets.Done(packet.request)


async def delete_topic(session: "Session", packet: packets.DeleteTopic) -> Packet:
    session.may_write()
    await session.broker.topics.delete(packet.topic, caller=session.caller)
    return packets.Done(packet.request)


async def purge_topic(session: "Session", packet: packets.PurgeTopic) -> Packet:
    session.may_write()
    return packets.Number(
        packet.request, await session.broker.topics.purge(packet.topic, caller=session.caller)
    )


async def set_retention(session: "Session", packet: packets.SetRetention) -> Packet:
    session.may_write()
    retention = Retention(packet.mode, packet.seconds, packet.bytes)
    await session.broker.topics.set_retention(packet.topic, retention, caller=session.caller)
    return packets.Done(packet.request)


async def grow_topic(session: "Session", packet: packets.GrowTopic) -> Packet:
    session.may_write()
    await session.broker.topics.grow(packet.topic, packet.partitions, caller=session.caller)
    return packets.Done(packet.request)


async def list_topics(session: "Session", packet: packets.ListTopics) -> Packet:
    found = await session.broker.topics.find(packet.names)
    return packets.Topics(
        packet.request,
        [
            packets.TopicState(
                topic.name,
                topic.retention.mode,
                topic.retention.seconds,
                topic.retention.bytes,
                micros(topic.created_at),
                [(p.first_offset, p.next_offset) for p in topic.partitions],
                topic.subscriptions,
            )
            for topic in found
        ],
    )


async def subscribe(session: "Session", packet: packets.Subscribe) -> Packet:
    subscription = await session.broker.subscriptions.subscribe(
        packet.topic,
        packet.subscriber,
        start=packet.start,
        holds_retention=packet.holds_retention,
    )
    return packets.Subscribed(packet.request, subscription.created, subscription.subscription_id)


async def unsubscribe(session: "Session", packet: packets.Unsubscribe) -> Packet:
    await session.broker.subscriptions.unsubscribe(packet.topic, packet.subscriber)
    return packets.Done(packet.request)


async def list_subscriptions(session: "Session", packet: packets.ListSubscriptions) -> Packet:
    found = await session.broker.subscriptions.list(packet.topic, packet.subscriber)
    return packets.Subscriptions(
        packet.request,
        [
            packets.SubscriptionState(
                s.topic,
                s.subscriber,
                s.holds_retention,
                micros(s.created_at),
                s.lag,
                None if s.confirmed_at is None else micros(s.confirmed_at),
            )
            for s in found
        ],
    )


async def last_count(session: "Session", packet: packets.LastCount) -> Packet:
    if session.publisher is None:
        raise InvalidInput("this connection has no publisher; name one in Hello")
    count = await session.broker.publishers.last_count(session.publisher.name, packet.kind, packet.name)
    return packets.Number(packet.request, count)


TOPIC_REQUESTS: dict[type[Packet], Callable[[Any, Any], Coroutine[Any, Any, Packet]]] = {
    packets.Ping: ping,
    packets.Status: status,
    packets.Fetch: fetch,
    packets.CreateTopic: create_topic,
    packets.DeleteTopic: delete_topic,
    packets.PurgeTopic: purge_topic,
    packets.SetRetention: set_retention,
    packets.GrowTopic: grow_topic,
    packets.ListTopics: list_topics,
    packets.Subscribe: subscribe,
    packets.Unsubscribe: unsubscribe,
    packets.ListSubscriptions: list_subscriptions,
    packets.LastCount: last_count,
}
