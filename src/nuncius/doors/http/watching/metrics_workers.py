"""Combine the metrics of several workers into those of one node, with a label for the worker.

A node without workers has no such label: its only process is the node.
"""

from collections.abc import Iterable

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nuncius.broker.background.siblings import Heard

LABEL = "worker"


class Sample(msgspec.Struct, frozen=True, array_like=True):
    name: str
    labels: dict[str, str]
    value: float


class Family(msgspec.Struct, frozen=True, array_like=True):
    """A metric of the library, in a form that can be sent between processes."""

    name: str
    documentation: str
    type: str
    samples: list[Sample]


def families(collectors: Iterable[Collector]) -> list[Family]:
    return [
        Family(
            each.name,
            each.documentation,
            each.type,
            [Sample(sample.name, sample.labels, sample.value) for sample in each.samples],
        )
        for collector in collectors
        for each in collector.collect()
    ]


class WorkerMetrics(Collector):
    """Metrics that the workers returned."""

    def __init__(self, heard: Heard[list[Family]], *, are_several: bool) -> None:
        self._heard = heard
        self._are_several = are_several

    def collect(self) -> Iterable[Metric]:
        merged: dict[str, Metric] = {}
        for number, said in self._heard.said.items():
            whose = {LABEL: str(number)} if self._are_several else {}
            for family in said:
                if family.name not in merged:
                    merged[family.name] = Metric(family.name, family.documentation, family.type)
                for sample in family.samples:
                    merged[family.name].add_sample(sample.name, sample.labels | whose, sample.value)
        yield from merged.values()
        if self._are_several:
            up = GaugeMetricFamily("nuncius_worker_up", "Whether a worker answers.", labels=(LABEL,))
            for number in sorted((*self._heard.said, *self._heard.missing)):
                up.add_metric((str(number),), int(number in self._heard.said))
            yield up
