"""Overview of the broker: figures, alarms, the deepest queues, the largest lags."""

from typing import Annotated

import msgspec

from nuncius.broker.observe.facts import Overview, Wish
from nuncius.broker.observe.findings import Severity, sentence
from nuncius.doors.http.api.operations import operation
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.v1.model import Time


class Deep(msgspec.Struct):
    """A queue, its number of messages, and the arrival of the oldest."""

    queue: str
    messages: int
    oldest: Time | None


class Lagging(msgspec.Struct):
    """A subscription and its lag."""

    topic: str
    subscriber: str
    lag: int
    failures: int
    confirmed_at: Time | None


class NodeSeen(msgspec.Struct):
    """A node of the cluster. `port` is that of its HTTP listener."""

    node_id: int
    host: str
    port: int
    roles: list[str]
    alive: bool


class Alarm(msgspec.Struct):
    """A problem, and what to do about it."""

    level: Severity
    text: str
    remedy: str


class Everything(msgspec.Struct):
    figures: Overview
    alarms: list[Alarm]
    queues: list[Deep]
    subscriptions: list[Lagging]
    nodes: list[NodeSeen]


class HowMany(msgspec.Struct):
    most: Annotated[int, msgspec.Meta(ge=1, le=100, description="Queues and subscriptions to show.")] = 10


@operation("GET", "/v1/overview")
async def get_overview(desk: Desk, query: HowMany) -> Everything:
    """The state of this broker: figures of its store, alarms, the deepest queues, the largest lags."""
    facts = desk.facts
    figures = await facts.overview()
    deepest, _ = await facts.queues.deepest(query.most)
    lagging = await facts.subscriptions.page(Wish("lag", descending=True, limit=query.most))
    return Everything(
        figures,
        [
            Alarm(each.state, sentence(each.detail), sentence(each.advice))
            for each in await facts.alarms(figures)
        ],
        [Deep(*each) for each in deepest if each[1]],
        [
            Lagging(each.topic, each.subscriber, each.lag, each.failures, each.confirmed_at)
            for each in lagging.rows
        ],
        [
            NodeSeen(each.node_id, each.host, each.port, list(each.roles), each.is_alive)
            for each in await facts.cluster.nodes()
        ],
    )


OPERATIONS = (get_overview,)
