"""Facts that consoles and command lines show about a broker, and the actions of operators.

    facts = Facts(broker)
    page = await facts.queues.page(Wish("depth", descending=True))

Each question is one bounded query or a few; lists are sorted, searched and paged by the store. Facts of a
single node (rates, latencies, connections) are in `counters` and, for other processes, under `/v1/stats` and
`/v1/connections`.
"""

from dataclasses import dataclass
from datetime import datetime

from nuncius.broker.broker import Broker
from nuncius.broker.observe.facts_actions import Actions
from nuncius.broker.observe.facts_clients import ClientFactsReader
from nuncius.broker.observe.facts_cluster import SILENCE, ClusterFactsReader
from nuncius.broker.observe.facts_page import Page, Wish
from nuncius.broker.observe.facts_pipelines import PipelineFactsReader
from nuncius.broker.observe.facts_queues import QueueFactsReader
from nuncius.broker.observe.facts_store import Fetch, StoreFacts, read_store
from nuncius.broker.observe.facts_subscriptions import SubscriptionFactsReader
from nuncius.broker.observe.facts_topics import TopicFactsReader
from nuncius.broker.observe.findings import Finding, ok, problems, warn
from nuncius.store.queries import procedure, query

OVERVIEW = procedure("overview", 2)
SCHEMA = query("health", "schema")

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

    def findings(self, dead_in: str = "", lagging: str = "") -> list[Finding]:
        """Check messages, consumers and nodes. The names of the worst places are added if they are given."""
        found = []
        if self.dead_letters:
            detail = _count(self.dead_letters, "dead-lettered message") + (dead_in and f", most in {dead_in}")
            advice = "move back, in the console, what can be processed now, and remove the rest"
            found.append(warn("dead letters", detail, advice))
        if self.failures:
            detail = f"{_count(self.failures, 'message')} awaiting redelivery"
            advice = "see with nuncius status why their consumers refuse them or do not acknowledge"
            found.append(warn("deliveries", detail, advice))
        else:
            found.append(ok("deliveries", "nothing awaits redelivery"))
        detail = f"highest lag of a subscription: {_count(self.lag, 'message')}"
        if self.lag > GREAT_LAG:
            advice = "check that its consumer runs; end the subscription if it is not needed"
            found.append(warn("subscriptions", detail + (lagging and f", of {lagging}"), advice))
        else:
            found.append(ok("subscriptions", detail if self.subscriptions else "there are none"))
        if self.inactive:
            detail = f"{self.inactive:,} inactive producers, consumers and brokers"
            advice = "see with nuncius status which, and whether they should run"
            found.append(warn("activity", detail, advice))
        else:
            found.append(ok("activity", "no producer, consumer or broker is inactive"))
        if self.nodes_alive < self.nodes:
            detail = f"{self.nodes - self.nodes_alive:,} of {self.nodes:,} nodes unreachable"
            advice = "start them again, or remove them on the console's page Cluster"
            found.append(warn("cluster", detail, advice))
        else:
            found.append(ok("cluster", f"{_count(self.nodes, 'node')}, all alive"))
        return found


async def read_overview(fetch: Fetch, inactive_after: float, *, messages: int, dead_letters: int) -> Overview:
    """Read the overview. Add what was counted before: messages in queues, and dead letters."""
    (row,) = await fetch(OVERVIEW, inactive_after, SILENCE)
    return Overview(**row, messages=messages, dead_letters=dead_letters)


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
        self.actions = Actions(store, broker.queues, broker.topics, self.queues, self.topics)

    async def store(self) -> StoreFacts:
        fetch = self._broker.store.query
        return await read_store(fetch, (await fetch(SCHEMA))[0][0])

    async def overview(self) -> Overview:
        depths = await self.queues.depths()
        dead = await self.subscriptions.dead_letters()
        return await read_overview(
            self._broker.store.query,
            self._broker.actors.inactive_after,
            messages=sum(depths.values()),
            dead_letters=sum(each.count for each in dead),
        )

    async def alarms(self, overview: Overview | None = None) -> tuple[Finding, ...]:
        """List the problems, failures first. Empty: all is well."""
        overview = overview or await self.overview()
        return problems([*(await self.store()).findings(), *overview.findings()])


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
