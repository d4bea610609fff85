"""Consumers of queues and subscriptions at this node, counted over all its workers."""

from collections import Counter
from functools import partial

import msgspec

from nuncius.broker import Broker
from nuncius.doors.http.api.operations import operation
from nuncius.doors.http.desk import Desk


class ConsumersOf(msgspec.Struct):
    """Connections that consume from a queue or subscription, and requests that wait for a message of it."""

    id: int
    consumers: int


class ConsumersHere(msgspec.Struct):
    """Queues and subscriptions that have consumers. `missing` are the numbers of workers that did not answer
    in time, whose consumers are not counted."""

    queues: list[ConsumersOf]
    subscriptions: list[ConsumersOf]
    missing: list[int] = []


class ConsumerCounts(msgspec.Struct, frozen=True):
    """The counts of one process."""

    queues: dict[int, int]
    subscriptions: dict[int, int]


def take_part(broker: Broker) -> None:
    """Let the other workers of the node ask this one for its consumers."""
    broker.siblings.answer("consumers", partial(_count, broker))


@operation("GET", "/v1/consumers")
async def get_consumers(desk: Desk) -> ConsumersHere:
    """The number of consumers of queues and subscriptions at this node."""
    heard = await desk.broker.siblings.ask("consumers", kind=ConsumerCounts)
    queues: Counter[int] = Counter()
    subscriptions: Counter[int] = Counter()
    for said in heard.said.values():
        queues.update(said.queues)
        subscriptions.update(said.subscriptions)
    return ConsumersHere(_sorted(queues), _sorted(subscriptions), heard.missing)


def _count(broker: Broker) -> ConsumerCounts:
    """Count the consumers of this process."""
    consumers = broker.consumers
    return ConsumerCounts(
        dict(consumers.queues + broker.queues.waiting_alone()), dict(consumers.subscriptions)
    )


def _sorted(counts: Counter[int]) -> list[ConsumersOf]:
    return [ConsumersOf(*each) for each in sorted(counts.items())]


OPERATIONS = (get_consumers,)
