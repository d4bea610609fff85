"""From requests to figures: DataFrames in, DataFrames out.

A run is measured from `warmup` seconds after its first request to `cooldown` seconds before its last answer,
in whole buckets. A request belongs to the bucket in which it was answered. A bucket in which nothing was
answered counts, as zero.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from nuncius.pipeline.evaluation.confidence import half_width, half_width_of_ratio
from nuncius.pipeline.evaluation.traces import PHASES

# Requests as clients or nodes measured them, the input of all figures. `took` in nanoseconds.
REQUESTS = "step string, epoch_ms bigint, took bigint, method string, answer string"
WINDOWS = "step string, begin_ns bigint, buckets int"
_AMOUNTS = "requests bigint, messages bigint, errors bigint"
BUCKETS = f"step string, bucket int, at_s double, {_AMOUNTS}, response_ms double"
_MEANS = (
    "requests_s double, requests_s_ci double, messages_s double, messages_s_ci double, "
    "response_ms double, response_ms_ci double"
)
_SPREAD = "p50_ms double, p90_ms double, p95_ms double, p99_ms double, p999_ms double, max_ms double"
RUNS = f"step string, buckets bigint, seconds double, {_AMOUNTS}, {_MEANS}, {_SPREAD}"
METHODS = f"step string, method string, buckets bigint, seconds double, {_AMOUNTS}, {_MEANS}, {_SPREAD}"
SHARES = "step string, phase string, mean_ms double, share double"
HISTOGRAM = "step string, method string, low_ms double, high_ms double, requests bigint"
SERIES = f"step string, parameter string, value double, {_MEANS}, p99_ms double, speedup double"

PERCENTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}
PER_DECADE = 10  # buckets of a histogram
MESSAGE = "ReadMessageResponse"
ERROR = "Error"
_NS = 1_000_000_000


def as_clients_saw(clients: DataFrame) -> DataFrame:
    return clients.select(
        "step",
        "epoch_ms",
        sf.col("response_time").alias("took"),
        sf.col("sent_method").alias("method"),
        sf.col("received_method").alias("answer"),
    )


def as_nodes_saw(nodes: DataFrame) -> DataFrame:
    """Return requests as nodes measured them. Their traces do not contain the methods."""
    took = sum((sf.col(phase) for phase in PHASES), start=sf.lit(0))
    nothing = sf.lit(None).cast("string")
    return nodes.select(
        "step", "epoch_ms", took.alias("took"), nothing.alias("method"), nothing.alias("answer")
    )


def windows(requests: DataFrame, *, warmup: float, cooldown: float, bucket: float) -> DataFrame:
    """Return the measured part of each run: its start, and its number of buckets (perhaps none)."""
    begin = sf.min("epoch_ms") * 1_000_000 + round(warmup * _NS)
    end = sf.max(_answered()) - round(cooldown * _NS)
    whole = sf.floor((end - begin) / round(bucket * _NS))
    return requests.groupBy("step").agg(
        begin.cast("bigint").alias("begin_ns"), sf.greatest(whole, sf.lit(0)).cast("int").alias("buckets")
    )


def measured(requests: DataFrame, measured_windows: DataFrame, *, bucket: float) -> DataFrame:
    """Return the requests in the measured part, each with its bucket."""
    since = _answered() - sf.col("begin_ns")
    place = sf.floor(since / round(bucket * _NS)).cast("int")
    return (
        requests.join(measured_windows, "step")
        .withColumn("bucket", place)
        .where("bucket >= 0 and bucket < buckets")
        .drop("begin_ns", "buckets")
    )


def buckets(counted: DataFrame, measured_windows: DataFrame, *by: str, bucket: float) -> DataFrame:
    """Sum up each bucket of each run, or (`by`) of each method in it."""
    keys = counted.select("step", *by).distinct().join(measured_windows.where("buckets > 0"), "step")
    every = keys.select("step", *by, sf.explode(sf.expr("sequence(0, buckets - 1)")).alias("bucket"))
    happened = counted.groupBy("step", *by, "bucket").agg(
        sf.count("*").alias("requests"),
        sf.count_if(sf.col("answer") == MESSAGE).alias("messages"),
        sf.count_if(sf.col("answer") == ERROR).alias("errors"),
        (sf.avg("took") / 1e6).alias("response_ms"),
    )
    amounts = [sf.coalesce(name, sf.lit(0)).alias(name) for name in ("requests", "messages", "errors")]
    at = (sf.col("bucket") * bucket).cast("double").alias("at_s")
    return every.join(happened, ["step", *by, "bucket"], "left").select(
        "step", *by, "bucket", at, *amounts, "response_ms"
    )


def summed_up(counted: DataFrame, bucketed: DataFrame, *by: str, bucket: float) -> DataFrame:
    """Return the figures of each run, or (`by`) of each method in it. Means of rates are over buckets, the
    mean of response times is over requests; the intervals are over buckets. Percentiles are exact, of times
    in whole microseconds, interpolated between neighbours."""
    micros = sf.expr("took div 1000")
    spread = counted.groupBy("step", *by).agg(
        (sf.avg("took") / 1e6).alias("response_ms"),
        sf.percentile(micros, list(PERCENTILES.values())).alias("spread"),
        (sf.max("took") / 1e6).alias("max_ms"),
    )
    rates = bucketed.select(
        *("step", *by, "requests", "messages", "errors", "response_ms"),
        (sf.col("requests") / bucket).alias("requests_s"),
        (sf.col("messages") / bucket).alias("messages_s"),
    )
    time = sf.col("response_ms") * sf.col("requests")
    means = rates.groupBy("step", *by).agg(
        sf.count("*").alias("buckets"),
        (sf.count("*") * bucket).cast("double").alias("seconds"),
        *(sf.sum(name).alias(name) for name in ("requests", "messages", "errors")),
        *(sf.avg(name).alias(name) for name in ("requests_s", "messages_s")),
        *(half_width(name).alias(f"{name}_ci") for name in ("requests_s", "messages_s")),
        half_width_of_ratio(sf.coalesce(time, sf.lit(0.0)), sf.col("requests")).alias("response_ms_ci"),
    )
    columns = ("requests_s", "requests_s_ci", "messages_s", "messages_s_ci", "response_ms", "response_ms_ci")
    percentiles = [(sf.col("spread")[n] / 1000).alias(name) for n, name in enumerate(PERCENTILES)]
    return means.join(spread, ["step", *by]).select(
        *("step", *by, "buckets", "seconds", "requests", "messages", "errors"),
        *columns,
        *percentiles,
        "max_ms",
    )


def shares(nodes: DataFrame, measured_windows: DataFrame, *, bucket: float) -> DataFrame:
    """Return the share of each phase in the time that requests spent in the nodes."""
    took = sum((sf.col(phase) for phase in PHASES), start=sf.lit(0))
    counted = measured(nodes.withColumn("took", took), measured_windows, bucket=bucket)
    means = counted.groupBy("step").agg(*((sf.avg(phase) / 1e6).alias(phase) for phase in PHASES))
    total = sum((sf.col(phase) for phase in PHASES), start=sf.lit(0.0))
    rows = sf.array(
        *(
            sf.struct(
                sf.lit(phase).alias("phase"),
                sf.col(phase).alias("mean_ms"),
                sf.coalesce(sf.try_divide(sf.col(phase), total), sf.lit(0.0)).alias("share"),
            )
            for phase in PHASES
        )
    )
    return means.select("step", sf.inline(rows))


def histogram(counted: DataFrame) -> DataFrame:
    """Count requests by duration, in logarithmic buckets (ten for each power of ten): for each method, and
    for all (where `method` is null)."""
    number = sf.floor(sf.log10(sf.greatest(sf.col("took"), sf.lit(1)).cast("double")) * PER_DECADE)
    placed = counted.withColumn("number", number)
    each = placed.where("method is not null").groupBy("step", "method", "number").agg(sf.count("*"))
    total = placed.groupBy("step", sf.lit(None).cast("string").alias("method"), "number").agg(sf.count("*"))

    def edge(place: Column) -> Column:
        return sf.pow(sf.lit(10.0), place / PER_DECADE) / 1e6

    counts = total.unionAll(each).toDF("step", "method", "number", "requests")
    low, high = edge(sf.col("number")), edge(sf.col("number") + 1)
    return counts.select("step", "method", low.alias("low_ms"), high.alias("high_ms"), "requests")


def series(runs: DataFrame, steps: DataFrame) -> DataFrame:
    """Return the runs of each series by the varied parameter, with their speedup over the first. `steps` has
    columns step, parameter and value."""
    first = sf.first("requests_s").over(Window.partitionBy("parameter").orderBy("value"))
    columns: Sequence[str] = (
        *("requests_s", "requests_s_ci", "messages_s", "messages_s_ci", "response_ms", "response_ms_ci"),
        "p99_ms",
    )
    return (
        runs.join(steps, "step")
        .where("parameter is not null")
        .select(
            *("step", "parameter", "value", *columns),
            sf.try_divide("requests_s", first).alias("speedup"),
        )
    )


def _answered() -> Column:
    return sf.col("epoch_ms") * 1_000_000 + sf.col("took")
