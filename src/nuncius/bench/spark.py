"""`bench spark`: topics as Spark tables and back, compared with Spark's own reader of PostgreSQL."""

import asyncio
import contextlib
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from rich.console import Console

from nuncius.bench.harness import BenchRun, measure
from nuncius.bench.limits import connected
from nuncius.bench.result import Goal, Result
from nuncius.pipeline import session
from nuncius.pipeline.jobs import find
from nuncius.pipeline.jobs.job import Context
from nuncius.pipeline.place import connect
from nuncius.store import migrations
from nuncius.store.server import embedded

GOALS = (
    Goal("read_vs_jdbc", at_least=0.9),
    Goal("archive_rows_s", at_least=200_000),
    Goal("write_rows_s", at_least=50_000),
    Goal("archive_growth", at_most=11),
    Goal("held_ms", at_most=1000),
)
STEPS = 6
ROWS = 2_000_000
PARTITIONS = 4
BODY = 100
REPEATS = 3
FOLLOWED = 12
LOOK_SECONDS = 0.02
# From Debian's libpostgresql-jdbc-java. Only the comparison needs it.
DRIVER = Path("/usr/share/java/postgresql.jar")

WITHOUT_DRIVER = (
    "The comparison with Spark's JDBC reader is left out, for {} is not there. "
    "On Debian: apt install libpostgresql-jdbc-java"
)

FILL = (
    "insert into nuncius.entries (partition_id, entry_offset, key, body)"
    " select p.partition_id, n, 'k' || n % 1000, decode(repeat(lpad(to_hex(n % 65536), 4, '0'), $3), 'hex')"
    " from nuncius.partitions p join nuncius.topics t using (topic_id), generate_series(0, $2::bigint - 1) n"
    " where t.topic_name = $1 order by n"
)
OPEN = (
    "select coalesce(max(date_part('epoch', clock_timestamp() - xact_start) * 1000), 0)::float8"
    " from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    " and backend_type = 'client backend'"
)


class SparkRun:
    """One run: a store and a session beside what every benchmark has."""

    def __init__(self, run: BenchRun, spark: SparkSession, dsn: str) -> None:
        self.step = run.step
        self.figures = run.figures
        self.directory = run.directory
        self.spark = spark
        self.dsn = dsn

    def fill(self, topic: str, rows: int) -> None:
        with connect(self.dsn) as db:
            db.execute("select nuncius.create_topic($1, $2)", topic, PARTITIONS)
            db.execute(FILL, topic, rows // PARTITIONS, BODY // 2)
            db.execute("analyze nuncius.entries")

    def topic(self, name: str) -> DataFrame:
        return self.spark.read.format("nuncius").options(store=self.dsn, topic=name).load()


def bench(console: Console, rows: int = ROWS) -> Result:
    result = Result("spark", GOALS)
    say_what_is_left_out(console)
    if not DRIVER.exists():
        result.unmeasured += ["jdbc_rows_s", "read_vs_jdbc"]
    return measure(console, result, 0, STEPS, lambda run: _run(run, rows))


async def _run(run: BenchRun, rows: int) -> None:
    port = _free_port()
    dsn = embedded.start(run.data_dir, tcp_port=port).dsn
    async with connected(dsn) as connection:
        await migrations.migrate(connection)
    password = (run.data_dir / "password").read_text().strip()
    url = f"jdbc:postgresql://127.0.0.1:{port}/nuncius"
    await asyncio.to_thread(_with_spark, run, dsn, rows, url, password)


def _with_spark(run: BenchRun, dsn: str, rows: int, url: str, password: str) -> None:
    settings = {"spark.jars": str(DRIVER)} if DRIVER.exists() else {}
    spark = session("local[2]", app="nuncius bench", settings=settings)
    try:
        _measure(SparkRun(run, spark, dsn), rows, url, password)
    finally:
        spark.stop()


def say_what_is_left_out(console: Console) -> None:
    """Without the driver, say that the comparison is left out and how to install the driver."""
    if not DRIVER.exists():
        console.print(WITHOUT_DRIVER.format(DRIVER), highlight=False, soft_wrap=True)


def _measure(run: SparkRun, rows: int, url: str, password: str) -> None:
    run.step("filling")
    run.fill("bench", rows)
    for n in range(REPEATS + 1):
        run.fill(f"bench-small-{n}", rows // 10)
    run.step("read_rows_s")
    ours, theirs = _read(run, url, password)
    run.figures["read_rows_s"] = rows / ours
    if theirs is not None:
        run.figures["jdbc_rows_s"] = rows / theirs
        run.figures["read_vs_jdbc"] = theirs / ours
    run.step("held_ms")
    with _longest_transaction(run.dsn) as longest:
        _drop(run.topic("bench"))
    run.figures["held_ms"] = longest()
    run.step("archive_rows_s")
    _archive(run, rows)
    run.step("write_rows_s")
    run.figures["write_rows_s"] = _write(run, rows // 4)
    run.step("follow_floor_ms")
    run.figures["follow_floor_ms"] = _follow(run)


def _read(run: SparkRun, url: str, password: str) -> tuple[float, float | None]:
    """Return the seconds to read the whole topic through our source and through Spark's. They alternate, so
    that noise affects both."""
    options = {
        "url": url,
        "user": "nuncius",
        "password": password,
        "driver": "org.postgresql.Driver",
        "dbtable": "nuncius.entries",
        "fetchsize": "10000",
        "partitionColumn": "partition_id",
        "lowerBound": "1",
        "upperBound": str(PARTITIONS + 1),
        "numPartitions": str(PARTITIONS),
    }
    jdbc = run.spark.read.format("jdbc").options(**options).load() if DRIVER.exists() else None
    ours, theirs = [], []
    for _ in range(REPEATS + 1):
        ours.append(_seconds(lambda: _drop(run.topic("bench"))))
        if jdbc is not None:
            theirs.append(_seconds(lambda: _drop(jdbc.where(f"partition_id <= {PARTITIONS}"))))
    # The first round warms up.
    return statistics.median(ours[1:]), statistics.median(theirs[1:]) if theirs else None


def _archive(run: SparkRun, rows: int) -> None:
    """Archive a small topic to warm up, then others of its size, then the large one."""

    def seconds(topic: str) -> float:
        settings = {"topic": topic, "lake": str(run.directory / "lake")}
        context = Context(run.spark, run.dsn, settings, checkpoint=str(run.directory / "checkpoints"))
        return _seconds(lambda: find("archive").run(context))

    small = [seconds(f"bench-small-{n}") for n in range(REPEATS + 1)]
    large = seconds("bench")
    run.figures["archive_rows_s"] = rows / large
    run.figures["archive_growth"] = large / statistics.median(small[1:])


def _write(run: SparkRun, rows: int) -> float:
    """Return the rows per second that the sink writes to a topic, exactly once as always."""
    number = sf.col("id").cast("string")
    frame = run.spark.range(rows, numPartitions=PARTITIONS).select(
        number.alias("key"), sf.rpad(number, BODY, "x").alias("value")
    )

    def write(topic: str) -> float:
        options = {"store": run.dsn, "topic": topic, "partitions": str(PARTITIONS)}
        return _seconds(lambda: frame.write.format("nuncius").options(**options).mode("append").save())

    write("written-0")
    return rows / statistics.median(write(f"written-{n}") for n in range(1, REPEATS + 1))


def _follow(run: SparkRun) -> float:
    """Return the duration of a micro-batch with one entry, from trigger to completion."""
    entries = run.spark.readStream.format("nuncius").options(store=run.dsn, topic="drops").load()
    checkpoint = str(run.directory / "follow")
    with connect(run.dsn) as db:
        db.execute("select nuncius.publish('drops', 'x')")
        query = entries.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        try:
            for _ in range(FOLLOWED):
                query.processAllAvailable()
                db.execute("select nuncius.publish('drops', 'x')")
            query.processAllAvailable()
            took = [
                float(batch.durationMs["triggerExecution"])
                for batch in query.recentProgress
                if batch.numInputRows > 0
            ]
        finally:
            query.stop()
    return statistics.median(took[len(took) // 3 :])


def _drop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextlib.contextmanager
def _longest_transaction(dsn: str) -> Iterator[Callable[[], float]]:
    """Poll the age of open transactions. Yield a function that returns the longest one seen."""
    longest = [0.0]
    stop = threading.Event()

    def look() -> None:
        with connect(dsn) as db:
            while not stop.wait(LOOK_SECONDS):
                ((held,),) = db.rows(OPEN)
                longest[0] = max(longest[0], held)

    watch = threading.Thread(target=look)
    watch.start()
    try:
        yield lambda: longest[0]
    finally:
        stop.set()
        watch.join()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
