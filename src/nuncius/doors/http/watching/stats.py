"""Statistics of this node: counts, rates and durations of store batches, for consoles and command lines."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import msgspec

from nuncius import __version__
from nuncius.broker import Broker
from nuncius.broker.observe.counters import KINDS
from nuncius.broker.observe.counters_model import quantile
from nuncius.doors.http.api.operations import operation
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.v1.model import Time

MOST_QUEUES = 200
SHARES = (0.5, 0.95, 0.99)

Seconds = Annotated[float, msgspec.Meta(gt=0, le=60, description="Over how long rates are taken.")]


class Amount(msgspec.Struct):
    """The total since the start, and the current rate per second."""

    total: int
    rate: float


class DoorStats(msgspec.Struct):
    """`messages` by kind: published, put, taken, delivered, acked, read."""

    connections: int
    messages: dict[str, Amount]


class QueueStats(msgspec.Struct):
    """Messages per second."""

    queue_id: int
    name: str
    put: float
    taken: float


class ProcedureStats(msgspec.Struct):
    """A combiner: batches and rows since the start, and percentiles of recent batches, in milliseconds."""

    name: str
    batches: int
    rows: int
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None


class ProcessStats(msgspec.Struct):
    """The load of one worker. A node without workers is its own worker 1."""

    worker: int
    pid: int
    started_at: Time
    accepted_bytes: int
    connections: int
    messages: dict[str, Amount]


class Stats(msgspec.Struct):
    """Statistics of a node, over all its workers: counts and rates are summed, percentiles are of the batches
    of all of them, and `started_at` is the earliest. `processes` has each worker by itself; `missing` are the
    numbers of workers that did not answer in time, and are not included."""

    version: str
    started_at: Time
    seconds: float
    accepted_bytes: int
    messages: dict[str, Amount]
    doors: dict[str, DoorStats]
    queues: list[QueueStats]
    procedures: list[ProcedureStats]
    processes: list[ProcessStats]
    missing: list[int]


class ProcessCounts(msgspec.Struct, frozen=True):
    """The statistics of one process, in a form that can be summed."""

    pid: int
    started_at: float
    seconds: float
    accepted_bytes: int
    connections: dict[str, int]
    messages: list[tuple[str, str, int, float]]
    """Door, kind, total and rate."""
    queues: dict[int, tuple[float, float]]
    """Put and taken per second."""
    procedures: dict[str, tuple[int, int, list[int]]]
    """Batches, rows, and a histogram of the durations of recent batches."""


class Over(msgspec.Struct):
    seconds: Seconds = 10.0


def take_part(broker: Broker) -> None:
    """Let the other workers of the node ask this one for its statistics."""
    broker.siblings.answer("stats", partial(_count, broker))


@operation("GET", "/v1/stats")
async def get_stats(desk: Desk, query: Over) -> Stats:
    """Counts, rates and latencies of this node."""
    heard = await desk.broker.siblings.ask("stats", query.seconds, kind=ProcessCounts)
    said = list(heard.said.values())
    return Stats(
        __version__,
        datetime.fromtimestamp(min(each.started_at for each in said), UTC),
        round(max(each.seconds for each in said), 3),
        sum(each.accepted_bytes for each in said),
        _messages(said),
        _doors(said),
        await _busiest(desk, said),
        _procedures(said),
        [_process(number, each) for number, each in heard.said.items()],
        heard.missing,
    )


def _count(broker: Broker, seconds: float) -> ProcessCounts:
    """Return the statistics of this process."""
    counters = broker.counters
    rates = counters.rates(seconds)
    return ProcessCounts(
        counters.pid,
        counters.started_at,
        rates.seconds,
        broker.pressure.level,
        counters.connections,
        [
            (door, kind, total, rates.messages.get((door, kind), 0.0))
            for (door, kind), total in counters.totals.items()
        ],
        rates.queues,
        {
            name: (combiner.batches, combiner.rows, rates.buckets.get(name, []))
            for name, combiner in broker.store.combiners.items()
            if combiner.batches
        },
    )


def _process(number: int, said: ProcessCounts) -> ProcessStats:
    return ProcessStats(
        number,
        said.pid,
        datetime.fromtimestamp(said.started_at, UTC),
        said.accepted_bytes,
        sum(said.connections.values()),
        _messages([said]),
    )


def _messages(said: Sequence[ProcessCounts]) -> dict[str, Amount]:
    return {kind: _amount(said, kind) for kind in KINDS}


def _doors(said: Sequence[ProcessCounts]) -> dict[str, DoorStats]:
    """Return statistics by listener, each with only the kinds of messages that it has seen."""
    doors = {}
    for name in dict.fromkeys(name for each in said for name in each.connections):
        amounts = {kind: _amount(said, kind, name) for kind in KINDS}
        connections = sum(each.connections.get(name, 0) for each in said)
        doors[name] = DoorStats(connections, {kind: each for kind, each in amounts.items() if each.total})
    return doors


def _amount(said: Sequence[ProcessCounts], kind: str, door: str | None = None) -> Amount:
    total, rate = 0, 0.0
    for each in said:
        for through, of, count, a_second in each.messages:
            if of == kind and door in (None, through):
                total += count
                rate += a_second
    return Amount(total, round(rate, 3))


def _procedures(said: Sequence[ProcessCounts]) -> list[ProcedureStats]:
    found = []
    for name in dict.fromkeys(name for each in said for name in each.procedures):
        counted = [each.procedures[name] for each in said if name in each.procedures]
        batches, rows = sum(each[0] for each in counted), sum(each[1] for each in counted)
        recent = [sum(column) for column in zip(*(each[2] for each in counted if each[2]), strict=True)]
        times = [round(1000 * quantile(recent, share), 3) for share in SHARES] if recent else []
        found.append(ProcedureStats(name, batches, rows, *times))
    return found


async def _busiest(desk: Desk, said: Sequence[ProcessCounts]) -> list[QueueStats]:
    rates: dict[int, tuple[float, float]] = {}
    for each in said:
        for queue_id, (put, taken) in each.queues.items():
            before = rates.get(queue_id, (0.0, 0.0))
            rates[queue_id] = (before[0] + put, before[1] + taken)
    busiest = sorted(rates, key=lambda each: -sum(rates[each]))[:MOST_QUEUES]
    names = await desk.facts.queues.names(busiest) if busiest else {}
    return [
        QueueStats(queue_id, names[queue_id], *(round(rate, 3) for rate in rates[queue_id]))
        for queue_id in busiest
        if queue_id in names
    ]


OPERATIONS = (get_stats,)
