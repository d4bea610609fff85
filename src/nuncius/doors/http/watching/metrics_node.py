"""Metrics of this process: connections, messages by listener and kind, and durations of store batches."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from nuncius import __version__
from nuncius.broker.observe.counters import Counters
from nuncius.broker.observe.counters_model import EDGES


class NodeMetrics(Collector):
    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def collect(self) -> Iterable[Metric]:
        counters = self._counters
        yield InfoMetricFamily("nuncius_build", "What runs.", value={"version": __version__})
        yield GaugeMetricFamily(
            "nuncius_start_time_seconds", "When this process began, since 1970.", counters.started_at
        )
        connections = GaugeMetricFamily("nuncius_connections", "Connections open now.", labels=("door",))
        for door, count in counters.connections.items():
            connections.add_metric((door,), count)
        yield connections
        messages = CounterMetricFamily(
            "nuncius_messages",
            "Messages published, put, taken, delivered, acked and read.",
            labels=("door", "kind"),
        )
        for (door, kind), count in counters.totals.items():
            messages.add_metric((door, kind), count)
        yield messages
        batches = HistogramMetricFamily(
            "nuncius_batch_seconds", "How long a batch took in the store.", labels=("procedure",)
        )
        for name, histogram in counters.procedures.items():
            batches.add_metric((name,), list(cumulative(EDGES, histogram.buckets)), histogram.seconds)
        yield batches


def cumulative(edges: Sequence[float], buckets: Sequence[int]) -> Iterator[tuple[str, float]]:
    """Return buckets as Prometheus has them: cumulative counts by upper edge."""
    total = 0
    for edge, count in zip([*map(str, edges), "+Inf"], buckets, strict=True):
        total += count
        yield edge, total
