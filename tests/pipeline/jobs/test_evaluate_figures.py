"""The figures of the evaluation, against arithmetic done by hand."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.testing import assertSchemaEqual

from nuncius.pipeline.evaluation import figures
from nuncius.pipeline.evaluation.confidence import TABLE, half_width, half_width_of_ratio, t95
from nuncius.pipeline.evaluation.traces import CLIENTS, NODES
from nuncius.pipeline.jobs.frames import frame

MS = 1_000_000
NOON = 1_767_268_800_000  # ms since 1970


def check(made: DataFrame, schema: str) -> None:
    assertSchemaEqual(made.schema, made.sparkSession.createDataFrame([], schema).schema)


def requests(spark: SparkSession, *rows: tuple[float, float, str, str]) -> DataFrame:
    """Requests of one run: sent at (s), took (ms), method, answer."""
    return figures.as_clients_saw(clients(spark, "run", rows))


def clients(spark: SparkSession, step: str, rows: Sequence[tuple[float, float, str, str]]) -> DataFrame:
    return frame(
        spark,
        CLIENTS,
        (
            {
                "step": step,
                "epoch_ms": NOON + round(at * 1000),
                "waiting": 0,
                "sent_method": method,
                "response_time": round(took * MS),
                "received_method": answer,
            }
            for at, took, method, answer in rows
        ),
    )


PUT, READ, DONE, GOT, ERROR = "PutMessage", "ReadMessage", "Success", "ReadMessageResponse", "Error"

# A run of 7 s. With one second cut off at either end, 5 s are measured: from 1.0 to 6.0.
RUN = [
    (0.0, 100.0, PUT, DONE),  # answered at 0.1: warm-up
    (0.9, 200.0, PUT, DONE),  # answered at 1.1: bucket 0
    (1.2, 4.0, READ, GOT),  # bucket 0
    (1.3, 6.0, READ, ERROR),  # bucket 0
    (1.9, 100.0, PUT, DONE),  # answered at 2.0, the very beginning of bucket 1
    (2.5, 8.0, READ, GOT),  # bucket 1
    # nothing in bucket 2
    (4.1, 2.0, PUT, DONE),  # bucket 3
    (4.2, 3.0, READ, GOT),  # bucket 3
    (4.3, 3.0, READ, GOT),  # bucket 3
    (5.5, 10.0, READ, GOT),  # bucket 4
    (6.5, 1.0, READ, GOT),  # cool-down
    (6.99, 10.0, PUT, DONE),  # answered at 7.0, the end
]


class Evaluated:
    def __init__(self, spark: SparkSession) -> None:
        seen = requests(spark, *RUN)
        check(seen, figures.REQUESTS)
        self.windows = figures.windows(seen, warmup=1, cooldown=1, bucket=1)
        check(self.windows, figures.WINDOWS)
        self.counted = figures.measured(seen, self.windows, bucket=1)
        self.buckets = figures.buckets(self.counted, self.windows, bucket=1)
        check(self.buckets, figures.BUCKETS)


@pytest.fixture(scope="module")
def run(spark: SparkSession) -> Evaluated:
    return Evaluated(spark)


def test_what_is_measured(run: Evaluated) -> None:
    """Warm-up and cool-down are cut; what remains is whole buckets."""
    assert run.windows.collect() == [Row(step="run", begin_ns=(NOON + 1000) * MS, buckets=5)]


def test_a_part_of_a_bucket_is_left_out(spark: SparkSession) -> None:
    """The rest at the end that does not fill a bucket is not measured; a short run has none."""
    seen = requests(spark, (0.0, 1.0, PUT, DONE), (5.0, 900.0, PUT, DONE))
    for warmup, cooldown, bucket, expected in ((1, 0, 1, 4), (1, 0.5, 2, 2), (3, 3, 1, 0)):
        made = figures.windows(seen, warmup=warmup, cooldown=cooldown, bucket=bucket)
        assert [row.buckets for row in made.collect()] == [expected]


def test_buckets_by_hand(run: Evaluated) -> None:
    """A request counts where it is answered, and a bucket without any counts as well."""
    rows = run.buckets.orderBy("bucket").collect()
    assert [(row.bucket, row.at_s) for row in rows] == [(n, float(n)) for n in range(5)]
    assert [(row.requests, row.messages, row.errors) for row in rows] == [
        (3, 1, 1),
        (2, 1, 0),
        (0, 0, 0),
        (3, 2, 0),
        (1, 1, 0),
    ]
    expected = [(200 + 4 + 6) / 3, (100 + 8) / 2, None, (2 + 3 + 3) / 3, 10]
    assert [row.response_ms for row in rows] == [pytest.approx(value) for value in expected]


def test_a_run_by_hand(run: Evaluated) -> None:
    """Throughput, response times, intervals and percentiles are those of plain arithmetic."""
    made = figures.summed_up(run.counted, run.buckets, bucket=1)
    check(made, figures.RUNS)
    (row,) = made.collect()
    assert (row.buckets, row.seconds, row.requests, row.messages, row.errors) == (5, 5.0, 9, 5, 1)
    # 9 requests in 5 s; deviations from 1.8 are 1.2, 0.2, -1.8, 1.2, -0.8; t for 4 degrees is 2.7764
    assert row.requests_s == pytest.approx(9 / 5)
    deviation = math.sqrt((1.2**2 + 0.2**2 + 1.8**2 + 1.2**2 + 0.8**2) / 4)
    assert row.requests_s_ci == pytest.approx(2.7764 * deviation / math.sqrt(5))
    # 5 messages: 1, 1, 0, 2, 1
    assert row.messages_s == pytest.approx(5 / 5)
    assert row.messages_s_ci == pytest.approx(2.7764 * math.sqrt(2 / 4) / math.sqrt(5))
    # 336 ms for 9 requests; the four buckets that have some (3 degrees: 3.1824) took 210, 108, 8 and 10 ms,
    # where their requests would take 3, 2, 3 and 1 times the mean
    times = [2, 3, 3, 4, 6, 8, 10, 100, 200]
    mean = 336 / 9
    assert row.response_ms == pytest.approx(mean)
    squares = (210 - 3 * mean) ** 2 + (108 - 2 * mean) ** 2 + (8 - 3 * mean) ** 2 + (10 - mean) ** 2
    assert row.response_ms_ci == pytest.approx(3.1824 * math.sqrt(4 / 3 * squares) / 9)
    # the fifth of nine; 90 %: 0.9 * 8 = 7.2, so a fifth of the way from 100 to 200; 99 %: 0.92 of it
    assert row.p50_ms == times[4]
    assert row.p90_ms == pytest.approx(100 + 0.2 * 100)
    assert row.p95_ms == pytest.approx(100 + 0.6 * 100)
    assert row.p99_ms == pytest.approx(100 + 0.92 * 100)
    assert row.p999_ms == pytest.approx(100 + 0.992 * 100)
    assert row.max_ms == 200


def test_methods_by_hand(run: Evaluated) -> None:
    """The same for each method; seconds without a request of that method count for its rate."""
    bucketed = figures.buckets(run.counted, run.windows, "method", bucket=1)
    made = figures.summed_up(run.counted, bucketed, "method", bucket=1)
    check(made, figures.METHODS)
    put, read = made.orderBy("method").collect()
    assert (put.method, put.buckets, put.requests, put.messages, put.errors) == (PUT, 5, 3, 0, 0)
    assert (put.requests_s, put.response_ms, put.p50_ms) == (0.6, pytest.approx(302 / 3), 100)
    # per second: 1, 1, 0, 1, 0
    assert put.requests_s_ci == pytest.approx(2.7764 * statistics.stdev([1, 1, 0, 1, 0]) / math.sqrt(5))
    assert (read.method, read.requests, read.messages, read.errors) == (READ, 6, 5, 1)
    assert (read.response_ms, read.p50_ms, read.max_ms) == (pytest.approx(34 / 6), 5, 10)


def test_buckets_of_another_size(spark: SparkSession) -> None:
    """Rates are per second whatever the size of a bucket."""
    seen = requests(spark, *((n / 10, 1.0, PUT, DONE) for n in range(41)))
    windows = figures.windows(seen, warmup=0, cooldown=0, bucket=0.5)
    counted = figures.measured(seen, windows, bucket=0.5)
    bucketed = figures.buckets(counted, windows, bucket=0.5)
    assert [row.at_s for row in bucketed.orderBy("bucket").collect()][:3] == [0.0, 0.5, 1.0]
    (row,) = figures.summed_up(counted, bucketed, bucket=0.5).collect()
    assert (row.buckets, row.seconds, row.requests, row.requests_s, row.requests_s_ci) == (8, 4.0, 40, 10, 0)


def test_one_bucket_has_no_interval(spark: SparkSession) -> None:
    """Nothing is said about the spread of a single sample."""
    seen = requests(spark, (0.0, 1.0, PUT, DONE), (1.0, 1.0, PUT, DONE))
    windows = figures.windows(seen, warmup=0, cooldown=0, bucket=1)
    counted = figures.measured(seen, windows, bucket=1)
    (row,) = figures.summed_up(counted, figures.buckets(counted, windows, bucket=1), bucket=1).collect()
    assert (row.requests_s, row.requests_s_ci, row.response_ms_ci) == (1, None, None)


def node(step: str, at: float, *phases: float) -> dict[str, Any]:
    waiting, parsing, database, response = (round(phase * MS) for phase in phases)
    times = {"waiting": waiting, "parsing": parsing, "database": database, "response": response}
    return {"step": step, "epoch_ms": NOON + round(at * 1000), **times}


def test_phases_by_hand(spark: SparkSession, run: Evaluated) -> None:
    """A phase's share is its part of the time in the node, in what is measured of the run."""
    rows = [node("run", 2, 1, 1, 14, 4), node("run", 3, 0, 1, 18, 1), node("run", 0.5, 99, 0, 0, 0)]
    nodes = frame(spark, NODES, rows)
    made = figures.shares(nodes, run.windows, bucket=1)
    check(made, figures.SHARES)
    assert [tuple(row) for row in made.collect()] == [
        ("run", "waiting", 0.5, pytest.approx(1 / 40)),
        ("run", "parsing", 1.0, pytest.approx(2 / 40)),
        ("run", "database", 16.0, pytest.approx(32 / 40)),
        ("run", "response", 2.5, pytest.approx(5 / 40)),
    ]


def test_a_node_alone(spark: SparkSession) -> None:
    """Where only nodes wrote traces, their requests are evaluated, without methods and messages."""
    nodes = frame(spark, NODES, [node("run", n / 2, 1, 1, 2, 0) for n in range(5)])
    seen = figures.as_nodes_saw(nodes)
    check(seen, figures.REQUESTS)
    windows = figures.windows(seen, warmup=0, cooldown=0, bucket=1)
    counted = figures.measured(seen, windows, bucket=1)
    (row,) = figures.summed_up(counted, figures.buckets(counted, windows, bucket=1), bucket=1).collect()
    assert (row.requests, row.requests_s, row.response_ms, row.messages) == (4, 2, 4, 0)
    assert [(row.method, row.requests) for row in figures.histogram(counted).collect()] == [(None, 4)]


def test_a_histogram_by_hand(spark: SparkSession) -> None:
    """Each bucket is wider than the one before by the tenth root of ten; powers of ten are edges."""
    seen = requests(spark, *((0.0, took, PUT, DONE) for took in (1.0, 1.2, 1.26, 9.99, 10.0, 0.0)))
    made = figures.histogram(seen)
    check(made, figures.HISTOGRAM)
    rows = made.where("method is null").orderBy("low_ms").collect()
    step = 10**0.1
    expected = [(1e-6, 1), (1.0, 2), (step, 1), (10 / step, 1), (10.0, 1)]
    assert [(row.low_ms, row.requests) for row in rows] == [(pytest.approx(low), n) for low, n in expected]
    assert [row.high_ms / row.low_ms for row in rows] == [pytest.approx(step)] * 5
    assert made.where(sf.col("method") == PUT).count() == 5


def test_a_series(spark: SparkSession) -> None:
    """The runs of a series by what was varied, and how much more each does than the first."""
    runs = {"clients_8": 10, "clients_32": 25, "other": 1}
    rows = [{"step": step, "requests_s": float(rate), "p99_ms": 1.0} for step, rate in runs.items()]
    steps = frame(
        spark,
        "step string, parameter string, value double",
        [
            {"step": "clients_32", "parameter": "clients", "value": 32.0},
            {"step": "clients_8", "parameter": "clients", "value": 8.0},
            {"step": "other"},
        ],
    )
    made = figures.series(frame(spark, figures.RUNS, rows), steps)
    check(made, figures.SERIES)
    assert [(row.value, row.requests_s, row.speedup) for row in made.orderBy("value").collect()] == [
        (8, 10, 1),
        (32, 25, 2.5),
    ]


def test_quantiles(spark: SparkSession) -> None:
    """The quantiles of t are those of the books, below and beyond the table."""
    books = {0: None, 1: 12.7062, 10: 2.2281, 30: 2.0423, 31: 2.0395, 40: 2.0211, 60: 2.0003, 120: 1.9799}
    rows = spark.createDataFrame([(n,) for n in books], "n bigint").select("n", t95(sf.col("n")).alias("t"))
    assert {row.n: row.t for row in rows.collect()} == {
        n: None if t is None else pytest.approx(t, abs=1e-4) for n, t in books.items()
    }
    assert len(TABLE) == 30
    assert list(TABLE) == sorted(TABLE, reverse=True)


def test_equal_weights(spark: SparkSession) -> None:
    """Where all buckets have as many requests, the interval of the ratio is that of a mean."""
    rows = [(1.0, 10.0, 10), (3.0, 30.0, 10), (8.0, 80.0, 10)]
    samples = spark.createDataFrame(rows, "mean double, total double, weight int")
    ratio = half_width_of_ratio(sf.col("total"), sf.col("weight"))
    (row,) = samples.agg(half_width("mean").alias("plain"), ratio.alias("ratio")).collect()
    # t for 2 degrees; the variance of 1, 3, 8 is (9 + 1 + 16) / 2
    assert row.plain == pytest.approx(4.3027 * math.sqrt(13) / math.sqrt(3))
    assert row.ratio == pytest.approx(row.plain)


def test_a_thin_bucket_weighs_little(spark: SparkSession) -> None:
    """One slow request in a bucket of its own hardly widens the interval of a thousand others."""
    rows = [(1000.0, 1000)] * 5 + [(500.0, 1), (0.0, 0)]
    samples = spark.createDataFrame(rows, "total double, weight int")
    (row,) = samples.agg(half_width_of_ratio(sf.col("total"), sf.col("weight")).alias("h")).collect()
    mean = 5500 / 5001
    squares = 5 * (1000 - 1000 * mean) ** 2 + (500 - mean) ** 2
    assert row.h == pytest.approx(2.5706 * math.sqrt(6 / 5 * squares) / 5001)
    assert row.h < 0.4
