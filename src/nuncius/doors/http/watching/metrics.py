"""Metrics of a node, for Prometheus.

Requests are counted in plain dictionaries, which cost a fraction of the library's own counters on the path of
messages; the library reads them on each scrape. The worker that is scraped collects the counts of all workers
of the node; the state of the store is the same for all, so it reads that itself.
"""

import asyncio
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from nuncius.broker import Broker
from nuncius.broker.observe.counters import DELIVERED, PUBLISHED, PUT, TAKEN
from nuncius.broker.observe.facts import Facts
from nuncius.doors.http.watching.metrics_node import NodeMetrics, cumulative
from nuncius.doors.http.watching.metrics_store import StoreMetrics
from nuncius.doors.http.watching.metrics_workers import Family, WorkerMetrics, families

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds

# Kinds of messages, by destination and by source.
INTO = {"topic": PUBLISHED, "queue": PUT}
OUT_OF = {"queue": TAKEN, "consumer": DELIVERED}


class RequestMetrics(Collector):
    """Requests by listener, endpoint and status, and their durations."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self._buckets: dict[tuple[str, str], list[int]] = {}
        self._seconds: defaultdict[tuple[str, str], float] = defaultdict(float)

    def count(self, door: str, endpoint: str, status: int, seconds: float) -> None:
        self._counts[door, endpoint, status] += 1
        where = (door, endpoint)
        buckets = self._buckets.get(where)
        if buckets is None:
            buckets = self._buckets[where] = [0] * (len(BUCKETS) + 1)
        buckets[bisect_left(BUCKETS, seconds)] += 1
        self._seconds[where] += seconds

    def collect(self) -> Iterable[Metric]:
        counts = CounterMetricFamily(
            "nuncius_requests", "Requests answered.", labels=("door", "endpoint", "status")
        )
        for (door, endpoint, status), count in self._counts.items():
            counts.add_metric((door, endpoint, str(status)), count)
        yield counts
        latency = HistogramMetricFamily(
            "nuncius_request_seconds", "From a request to its answer.", labels=("door", "endpoint")
        )
        for where, buckets in self._buckets.items():
            latency.add_metric(where, list(cumulative(BUCKETS, buckets)), self._seconds[where])
        yield latency


class _Combiners(Collector):
    """Batches and rows of each combiner, and the messages among them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self) -> Iterable[Metric]:
        combiners = self._broker.store.combiners
        batches = CounterMetricFamily(
            "nuncius_combiner_batches", "Batches sent to the store.", labels=("combiner",)
        )
        rows = CounterMetricFamily(
            "nuncius_combiner_rows", "Rows in these batches, or calls.", labels=("combiner",)
        )
        for name, combiner in combiners.items():
            batches.add_metric((name,), combiner.batches)
            rows.add_metric((name,), combiner.rows)
        yield batches
        yield rows
        totals = self._broker.counters.totals
        for direction, ways in (("in", INTO), ("out", OUT_OF)):
            messages = CounterMetricFamily(
                f"nuncius_messages_{direction}", f"Messages {direction}, of all doors.", labels=("kind",)
            )
            for kind, counted in ways.items():
                messages.add_metric((kind,), sum(count for (_, of), count in totals.items() if of == counted))
            yield messages
        pressure = GaugeMetricFamily("nuncius_accepted_bytes", "Requests not answered, answers not read.")
        pressure.add_metric((), self._broker.pressure.level)
        yield pressure


class Metrics:
    def __init__(self, broker: Broker, facts: Facts) -> None:
        self.requests = RequestMetrics()
        self._stored = StoreMetrics(facts, broker.actors.answers)
        self._siblings = broker.siblings
        own = (
            self.requests,
            _Combiners(broker),
            NodeMetrics(broker.counters),
            ProcessCollector(registry=None),
        )
        self._siblings.answer("metrics", lambda: families(own))

    async def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        heard, _ = await asyncio.gather(
            self._siblings.ask("metrics", kind=list[Family]), self._stored.refresh()
        )
        registry = CollectorRegistry()
        registry.register(WorkerMetrics(heard, are_several=self._siblings.are_several))
        registry.register(self._stored)
        return generate_latest(registry)
