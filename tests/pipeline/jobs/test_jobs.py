"""The framework of jobs: their context, their rows in the store, streams that end, and jobs of users."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from nuncius.pipeline import jobs, place
from nuncius.pipeline.errors import InvalidOption, PipelineError
from nuncius.pipeline.explaining import explain
from nuncius.pipeline.jobs.job import Context, Job, Summary
from nuncius.pipeline.jobs.own import find, own_job
from nuncius.pipeline.jobs.runs import JobFailed, JobRun, perform, runs
from pipeline.filling import create, publish, value
from pipeline.written import bodies, entries


def last(dsn: str, job: str | None = None) -> JobRun:
    with place.connect(dsn) as db:
        return runs(db, job)[0]


def states(dsn: str) -> list[str]:
    with place.connect(dsn) as db:
        return [run.state for run in runs(db)]


# Runs


def test_a_run_that_is_done(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """A run is a row: its settings, its time, and what it did. It is `running` while it runs."""
    seen = []

    def run(_: Context) -> Summary:
        seen.extend(states(dsn))
        return Summary(3, 2, {"where": tmp_path, "list": ["a"]})

    summary = perform(Job("copy", "copies", run), Context(spark, dsn, {"a": "b"}))
    assert summary.rows_read == 3
    assert seen == ["running"]
    done = last(dsn, "copy")
    assert (done.state, done.settings, done.rows_read, done.rows_written) == ("done", {"a": "b"}, 3, 2)
    assert done.summary == {"where": str(tmp_path), "list": ["a"]}
    assert done.finished is not None
    assert done.finished >= done.started
    assert done.error is None


def test_a_run_that_fails(spark: SparkSession, dsn: str) -> None:
    """A failure is one sentence, in the row and for whoever called."""

    def spark_fails(context: Context) -> Summary:
        context.spark.sql("select nothing from nowhere")
        return Summary()

    def refuses(context: Context) -> Summary:
        context.setting("topic")
        return Summary()

    with pytest.raises(JobFailed, match=r"^The table or view `nowhere` cannot be found"):
        perform(Job("a", "", spark_fails), Context(spark, dsn))
    assert last(dsn).state == "failed"
    assert str(last(dsn).error).startswith("The table or view `nowhere` cannot be found")
    with pytest.raises(InvalidOption, match="this job needs a setting: --set topic="):
        perform(Job("b", "", refuses), Context(spark, dsn))
    assert last(dsn).error == "this job needs a setting: --set topic=..."


def test_a_run_that_is_stopped(spark: SparkSession, dsn: str) -> None:
    """A run that is stopped is not a failure, whatever Spark says to it, and keeps what it did."""

    def stopped(context: Context) -> Summary:
        context.stopping.set()
        return Summary(5)

    def complains(context: Context) -> Summary:
        context.stopping.set()
        raise AnalysisException("job was cancelled")

    def impatient(_: Context) -> Summary:
        raise KeyboardInterrupt

    assert perform(Job("a", "", stopped), Context(spark, dsn)).rows_read == 5
    assert perform(Job("b", "", complains), Context(spark, dsn)) == Summary()
    with pytest.raises(KeyboardInterrupt):
        perform(Job("c", "", impatient), Context(spark, dsn))
    assert states(dsn) == ["stopped", "stopped", "stopped"]
    with place.connect(dsn) as db:
        assert runs(db, "a")[0].rows_read == 5


def test_a_run_that_was_killed(dsn: str) -> None:
    """A run whose process is gone without a word is shown as interrupted."""
    value(dsn, "insert into nuncius.pipeline_runs (job_name, settings) values ('x', '{}') returning run_id")
    assert states(dsn) == ["interrupted"]


def test_listing(spark: SparkSession, dsn: str) -> None:
    """Runs are listed the latest first, all of them or those of one job."""
    for name in ("a", "b", "a"):
        perform(Job(name, "", lambda context: Summary()), Context(spark, dsn))
    with place.connect(dsn) as db:
        assert [run.job for run in runs(db)] == ["a", "b", "a"]
        assert [run.job for run in runs(db, limit=2)] == ["a", "b"]
        assert [run.run_id for run in runs(db, "a")] == [3, 1]
        assert runs(db, "c") == []


# Context


def test_reading(spark: SparkSession, dsn: str) -> None:
    """A context reads its own store; options that are None are left out."""
    create(dsn, "news")
    publish(dsn, "news", ["a", "b"])
    context = Context(spark, dsn)
    read = context.read(topic="news", startingOffsets=None, failOnDataLoss=False)
    assert [bytes(row.value) for row in read.orderBy("offset").collect()] == [b"a", b"b"]
    assert context.read(stream=True, topic="news").isStreaming


def test_progress(spark: SparkSession, dsn: str) -> None:
    """Progress goes to whoever shows it, or nowhere."""
    said: list[tuple[Any, ...]] = []
    Context(spark, dsn).progress("quiet")
    Context(spark, dsn, show=lambda *words: said.append(words)).progress("half", 1, 2)
    assert said == [("half", 1, 2)]


def test_checkpoints(spark: SparkSession, dsn: str) -> None:
    """A stream's place is found again by what the stream is about, and nothing else finds it."""
    context = Context(spark, dsn, checkpoint="/c")
    mine = context.checkpoint_for(topic="a/b c", window="1")
    assert mine == context.checkpoint_for(topic="a/b c", window="1")
    assert mine.startswith("/c/a%2Fb%20c-")
    assert mine != context.checkpoint_for(topic="a/b c", window="2")
    with pytest.raises(InvalidOption, match="Give --checkpoint DIR"):
        Context(spark, dsn).checkpoint_for(topic="a")


def test_finding_jobs() -> None:
    """Jobs that come with us are found by name."""
    assert jobs.find("trends").name == "trends"
    with pytest.raises(
        InvalidOption, match="there is no job 'x': there are archive, audit, evaluate, timelines, trends"
    ):
        jobs.find("x")


# Streams


def test_following(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """With follow a stream goes on until it is stopped, and reads what came meanwhile."""
    create(dsn, "in")
    publish(dsn, "in", ["1", "2"])
    context = Context(spark, dsn, {"topic": "in", "to": "out"}, follow=True, checkpoint=str(tmp_path))

    class Watching:
        """Publishes more when the first are read, and stops the run when those are written."""

        more = False

        def __call__(self, text: str, done: int | None, total: int | None) -> None:
            if done == 2 and not self.more:
                publish(dsn, "in", ["3"])
                self.more = True
            if done == 3:
                context.stopping.set()

    context.show = Watching()
    summary = own_job("pipeline.own_jobs:shout").run(context)
    assert (summary.rows_read, summary.rows_written) == (3, 3)
    assert sorted(bodies(dsn, "out")) == [b"1!", b"2!", b"3!"]
    assert spark.streams.active == []


def test_a_stream_that_fails(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """A stream that fails ends the run with the sentence that matters."""
    create(dsn, "in")
    publish(dsn, "in", ["long"])
    context = Context(spark, dsn, {"topic": "in", "to": "out"}, checkpoint=str(tmp_path))
    with pytest.raises(JobFailed) as failed:
        perform(own_job("pipeline.own_jobs:broken"), context)
    assert "too long" in str(failed.value)
    assert "\n" not in str(failed.value)
    assert spark.streams.active == []


# Jobs of users


def test_a_job_of_ones_own(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """What a function makes of entries is published once; the next run goes on where this one ended."""
    create(dsn, "in", 2)
    publish(dsn, "in", ["a", "b"], keys=["x", None], partition=2)
    job = own_job("pipeline.own_jobs:shout")
    assert (job.name, job.summary) == ("pipeline.own_jobs:shout", "Says everything louder.")
    context = Context(spark, dsn, {"topic": "in", "to": "out", "mark": "?"}, checkpoint=str(tmp_path))
    first = perform(job, context)
    assert (first.rows_read, first.rows_written, first.facts) == (2, 2, {"batches": 1})
    publish(dsn, "in", ["c"])
    assert perform(job, context).rows_read == 1
    assert perform(job, context) == Summary(0, 0, {"batches": 0})
    assert {(entry["key"], entry["body"]) for entry in entries(dsn, "out")} == {
        ("x", b"A?"),
        (None, b"B?"),
        (None, b"C?"),
    }


def test_rows_without_a_value(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """Rows of any other shape are published as JSON objects, or written as Parquet files."""
    create(dsn, "in")
    publish(dsn, "in", ["a", "bcd"])
    settings = {"topic": "in", "to": "out"}
    own_job("pipeline.own_jobs:sizes").run(Context(spark, dsn, settings, checkpoint=str(tmp_path / "c")))
    assert [json.loads(body) for body in bodies(dsn, "out")] == [
        {"offset": 0, "size": 1},
        {"offset": 1, "size": 3},
    ]
    job = own_job("pipeline.own_jobs:sizes", to_parquet=str(tmp_path / "files"))
    summary = job.run(Context(spark, dsn, {"topic": "in"}, checkpoint=str(tmp_path / "c")))
    assert summary.rows_read == 2
    written = spark.read.parquet(str(tmp_path / "files")).orderBy("offset").collect()
    assert [(row.offset, row["size"]) for row in written] == [(0, 1), (1, 3)]


@pytest.mark.parametrize(
    ("reference", "settings", "to_parquet", "words"),
    [
        ("shout", {}, None, "a job is named as module:function, not 'shout'"),
        ("nowhere.at_all:shout", {}, None, "there is no module 'nowhere'"),
        ("pipeline.own_jobs:whisper", {}, None, "has no function 'whisper'"),
        ("pipeline.own_jobs:NOT_A_FUNCTION", {}, None, "has no function 'NOT_A_FUNCTION'"),
        ("pipeline.own_jobs:shout", {}, None, "Give --to TOPIC or --to-parquet DIR"),
        ("pipeline.own_jobs:shout", {"to": "out"}, "files", "Give --to TOPIC or --to-parquet DIR"),
        (
            "pipeline.own_jobs:shout",
            {"to": "out", "volume": "11"},
            None,
            "unexpected keyword argument 'volume'",
        ),
    ],
)
def test_wrong_use(
    spark: SparkSession,
    dsn: str,
    tmp_path: Path,
    reference: str,
    settings: dict[str, str],
    to_parquet: str | None,
    words: str,
) -> None:
    """A job that cannot be found or called is refused with a sentence."""
    context = Context(spark, dsn, {"topic": "in", **settings}, checkpoint=str(tmp_path))
    with pytest.raises(InvalidOption, match=words):
        own_job(reference, to_parquet=to_parquet).run(context)


def test_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in the current directory is found; one that fails to import says why itself."""
    (tmp_path / "my_job_here.py").write_text("def work(entries):\n    return entries\n")
    (tmp_path / "needs_more.py").write_text("import nothing_like_it\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert find("my_job_here:work").__name__ == "work"
    with pytest.raises(InvalidOption, match="there is no module 'nothing_like_it'"):
        find("needs_more:work")


# Words


@pytest.mark.parametrize(
    ("raise_it", "expected"),
    [
        (lambda spark: spark.sql("selec 1"), "Syntax error at or near 'selec'."),
        (
            lambda spark: spark.range(1).select("nothing"),
            "A column, variable, or function parameter with name `nothing`",
        ),
        (
            lambda spark: spark.read.format("nuncius").load().count(),
            "say what to read: either option 'topic'",
        ),
    ],
)
def test_explaining(
    spark: SparkSession, raise_it: Callable[[SparkSession], DataFrame], expected: str
) -> None:
    """Of what Spark raises, the sentence for the user is left."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - any of them
        raise_it(spark)
    said = explain(raised.value)
    assert said.startswith(expected), said
    assert "\n" not in said


def test_explaining_workers(spark: SparkSession) -> None:
    """An exception in a Python worker is named with its kind; our own and others' stay as they are."""

    def fail(_: object) -> None:
        raise ValueError("no good")

    with pytest.raises(Exception) as raised:  # noqa: PT011
        spark.range(1).rdd.foreach(fail)
    assert explain(raised.value) == "ValueError: no good"
    assert explain(PipelineError("a\n b")) == "a b"
    assert explain(KeyError()) == "KeyError"
