"""Metrics of the store's contents, the same from every node.

The store is read at most every few seconds, however often it is scraped; if it does not answer, the last
figures stay and `nuncius_store_up` is 0. Whether it answers is asked separately, because reading a large
store may take long and is then not soon repeated. The fullest queues and topics have labels of their own, and
the others are counted together; of subscriptions only those with the largest lag are shown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nuncius.broker.observe.facts import Facts, Overview, Wish
from nuncius.broker.observe.facts_store import StoreFacts
from nuncius.broker.observe.facts_subscriptions import SubscriptionFacts
from nuncius.doors.http.answering import in_time

MOST_NAMES = 100
OTHERS = "_others"
FRESH_SECONDS = 5.0
RESPITE = 20  # times the duration of a read, before the next: a large store is read less often
ANSWER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Figures:
    overview: Overview
    store: StoreFacts
    queues: list[tuple[str, int, datetime | None]]
    other_messages: int
    topics: list[tuple[str | None, int, int]]
    subscriptions: tuple[SubscriptionFacts, ...]


class StoreMetrics(Collector):
    def __init__(self, facts: Facts, answers: Callable[[], Awaitable[None]]) -> None:
        self._facts = facts
        self._answers = answers
        self._figures: _Figures | None = None
        self._next = self._next_look = float("-inf")
        self._is_up = False
        self._asking = asyncio.Lock()

    async def refresh(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._asking:
            begin = loop.time()
            if begin < self._next:
                return
            self._is_up = await in_time(self._answers(), ANSWER_SECONDS)
            if self._is_up and begin >= self._next_look:
                await in_time(self._look(), ANSWER_SECONDS)
                self._next_look = loop.time() + RESPITE * (loop.time() - begin)
            self._next = begin + FRESH_SECONDS

    async def _look(self) -> None:
        facts = self._facts
        queues, other_messages = await facts.queues.deepest(MOST_NAMES)
        subscriptions = await facts.subscriptions.page(Wish("lag", descending=True, limit=MOST_NAMES))
        self._figures = _Figures(
            await facts.overview(),
            await facts.store.read(),
            queues,
            other_messages,
            await facts.topics.fullest(MOST_NAMES),
            subscriptions.rows,
        )

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("nuncius_store_up", "Whether the store answers.", int(self._is_up))
        if self._figures is not None:
            yield from _queues(self._figures)
            yield from _topics(self._figures)
            yield from _subscriptions(self._figures)
            yield from _everything(self._figures)


def _queues(figures: _Figures) -> Iterable[Metric]:
    depth = GaugeMetricFamily("nuncius_queue_messages", "Messages in a queue.", labels=("queue",))
    age = GaugeMetricFamily(
        "nuncius_queue_oldest_message_age_seconds",
        "How long a queue's oldest message has been there.",
        labels=("queue",),
    )
    for name, messages, oldest in figures.queues:
        depth.add_metric((name,), messages)
        if oldest is not None:
            age.add_metric((name,), max(0.0, (figures.overview.now - oldest).total_seconds()))
    if figures.overview.queues > len(figures.queues):
        depth.add_metric((OTHERS,), figures.other_messages)
    yield depth
    yield age


def _topics(figures: _Figures) -> Iterable[Metric]:
    held = GaugeMetricFamily("nuncius_topic_messages", "Messages in a topic.", labels=("topic",))
    published = CounterMetricFamily(
        "nuncius_topic_published_messages", "Messages ever published to a topic.", labels=("topic",)
    )
    for name, entries, ever in figures.topics:
        held.add_metric((OTHERS if name is None else name,), entries)
        if name is not None:
            published.add_metric((name,), ever)
    yield held
    yield published


def _subscriptions(figures: _Figures) -> Iterable[Metric]:
    labels = ("topic", "subscriber")
    lag = GaugeMetricFamily("nuncius_subscription_lag_messages", "Messages not confirmed yet.", labels=labels)
    failures = GaugeMetricFamily(
        "nuncius_subscription_failed_messages", "Messages that failed and are redelivered.", labels=labels
    )
    for each in figures.subscriptions:
        lag.add_metric((each.topic, each.subscriber), each.lag)
        failures.add_metric((each.topic, each.subscriber), each.failures)
    yield lag
    yield failures


def _everything(figures: _Figures) -> Iterable[Metric]:
    overview, store = figures.overview, figures.store
    oldest = store.transactions[0].opened_at if store.transactions else store.now
    for name, meaning, value in (
        ("queues", "Queues.", overview.queues),
        ("topics", "Topics.", overview.topics),
        ("subscriptions", "Subscriptions.", overview.subscriptions),
        ("failed_messages", "Messages that could not be delivered and are redelivered.", overview.failures),
        ("dead_letters", "Messages that were dead-lettered.", overview.dead_letters),
        ("nodes", "Nodes of the cluster.", overview.nodes),
        ("nodes_alive", "Nodes of the cluster that have been heard lately.", overview.nodes_alive),
        ("inactive_actors", "Producers, consumers and brokers that are inactive.", overview.inactive),
        ("store_size_bytes", "Bytes of the database.", store.bytes),
        ("store_dead_rows", "Rows that vacuum has not removed yet.", store.dead),
        ("store_connections", "Connections to the server.", store.connections),
        (
            "store_oldest_transaction_seconds",
            "Age of the oldest open transaction.",
            max(0.0, (store.now - oldest).total_seconds()),
        ),
    ):
        yield GaugeMetricFamily(f"nuncius_{name}", meaning, value)
