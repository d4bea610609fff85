"""Facts that consoles and command lines show about a broker, and the actions of operators.

    facts = Facts(broker)
    page = await facts.queues.page(Wish("depth", descending=True))

Each question is one bounded query or a few; lists are sorted, searched and paged by the store. Facts of a
single node (rates, latencies, connections) are in `counters` and, for other processes, under `/v1/stats` and
`/v1/connections`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from nuncius.broker.broker import Broker
from nuncius.broker.observe.facts_actions import Actions
from nuncius.broker.observe.facts_clients import ClientFactsReader
from nuncius.broker.observe.facts_cluster import ClusterFactsReader
from nuncius.broker.observe.facts_page import Page, Wish
from nuncius.broker.observe.facts_pipelines import PipelineFactsReader
from nuncius.broker.observe.facts_queues import QueueFactsReader
from nuncius.broker.observe.facts_store import Advice, StoreFactsReader
from nuncius.broker.observe.facts_subscriptions import SubscriptionFactsReader
from nuncius.broker.observe.facts_topics import TopicFactsReader

GREAT_LAG = 100_000

__all__ = ["Facts", "Overview", "Page", "Wish"]


@dataclass(frozen=True, slots=True)
class Overview:
    queues: int
    messages: int
    """In all queues, counted recently."""
    topics: int
    entries: int
    subscriptions: int
    lag: int
    """Highest lag of a subscription."""
    clients: int
    failures: int
    """Awaiting redelivery."""
    dead_letters: int
    nodes: int
    nodes_alive: int
    inactive: int
    """Producers, consumers and brokers."""
    bytes: int
    now: datetime


class Facts:
    def __init__(self, broker: Broker) -> None:
        store = broker.store
        self._broker = broker
        self.queues = QueueFactsReader(store)
        self.topics = TopicFactsReader(store, broker.topics)
        self.subscriptions = SubscriptionFactsReader(store, lambda: broker.actors.inactive_after)
        self.cluster = ClusterFactsReader(store)
        self.clients = ClientFactsReader(store, broker.actors, self.cluster)
        self.pipelines = PipelineFactsReader(store)
        self.store = StoreFactsReader(store)
        self.actions = Actions(store, broker.queues, broker.topics, self.queues, self.topics)

    async def overview(self) -> Overview:
        depths = await self.queues.depths()
        rows = await self._broker.store.query(
            "select * from nuncius.overview($1, $2)", self._broker.actors.inactive_after, 5.0
        )
        row = rows[0]
        dead = await self.subscriptions.dead_letters()
        return Overview(
            row["queues"],
            sum(depths.values()),
            row["topics"],
            row["entries"],
            row["subscriptions"],
            row["lag"],
            row["clients"],
            row["failures"],
            sum(each.count for each in dead),
            row["nodes"],
            row["nodes_alive"],
            row["inactive"],
            row["bytes"],
            row["now"],
        )

    async def alarms(self, overview: Overview | None = None) -> tuple[Advice, ...]:
        """List the warnings for the operator, the worst first. Empty: all is well."""
        overview = overview or await self.overview()
        return worst_first([*(await self.store.read()).advice(), *alarms_of(overview)])


def worst_first(found: Iterable[Advice]) -> tuple[Advice, ...]:
    """Sort alarms, without those of level ok."""
    return tuple(
        sorted((each for each in found if each.level != "ok"), key=lambda each: each.level != "fail")
    )


def alarms_of(overview: Overview) -> list[Advice]:
    found = []
    if overview.dead_letters:
        found.append(
            Advice(
                "warn",
                _count(overview.dead_letters, "dead-lettered message"),
                "Move back what can be processed now, and remove the rest.",
            )
        )
    if overview.failures:
        found.append(
            Advice(
                "warn",
                f"{_count(overview.failures, 'message')} awaiting redelivery",
                "See why their consumers refuse them or do not acknowledge.",
            )
        )
    if overview.lag > GREAT_LAG:
        found.append(
            Advice(
                "warn",
                f"Highest lag of a subscription: {overview.lag:,} messages",
                "Check that its consumer runs; end the subscription if it is not needed.",
            )
        )
    if overview.inactive:
        found.append(
            Advice(
                "warn",
                f"{overview.inactive:,} inactive producers, consumers and brokers",
                "Check whether they should run.",
            )
        )
    if overview.nodes_alive < overview.nodes:
        found.append(
            Advice(
                "warn",
                f"{overview.nodes - overview.nodes_alive:,} of {overview.nodes:,} nodes unreachable",
                "Start them again, or remove them on the page Cluster.",
            )
        )
    return found


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
