"""The job `evaluate`, from trace files to the report."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from nuncius.bench.trace import CLIENT_COLUMNS
from nuncius.doors.telesto.trace import NODE_COLUMNS, TraceFile
from nuncius.pipeline import jobs
from nuncius.pipeline.errors import InvalidOption
from nuncius.pipeline.evaluation.report import EvaluationSettings
from nuncius.pipeline.evaluation.traces import NoTraces, TraceStep, steps_in
from nuncius.pipeline.jobs.evaluate import evaluate
from nuncius.pipeline.jobs.job import Context, Summary

NOON = 1_767_268_800_000
MS = 1_000_000


def trace(directory: Path, *, rate: int, seconds: int = 4, sides: Sequence[str] = ("client", "node")) -> None:
    """A run with so many requests a second, evenly: each took 2 ms, three quarters of it in the database."""
    times = [NOON + n * 1000 // rate for n in range(rate * seconds + 1)]
    if "client" in sides:
        file = TraceFile(directory, "client", CLIENT_COLUMNS)
        for n, time in enumerate(times):
            read = n % 2
            kinds = ("ReadMessage", "ReadMessageResponse") if read else ("PutMessage", "Success")
            file.add((time, 0, file.number_of(kinds[0]), 2 * MS, file.number_of(kinds[1])))
        file.close()
    if "node" in sides:
        file = TraceFile(directory, "node", NODE_COLUMNS)
        for time in times:
            file.add((time, MS // 10, MS // 10, 15 * MS // 10, 3 * MS // 10))
        file.close()


def run(spark: SparkSession, **settings: str) -> Summary:
    return jobs.find("evaluate").run(Context(spark, "", settings))


def test_a_run(spark: SparkSession, tmp_path: Path) -> None:
    """One directory of traces becomes a page and a document beside it."""
    trace(tmp_path, rate=100)
    summary = run(spark, traces=str(tmp_path), warmup="1", cooldown="1")
    assert summary.rows_read == 200
    assert summary.facts == {
        "report": str(tmp_path / "evaluation.html"),
        "json": str(tmp_path / "evaluation.json"),
        "runs": 1,
        "requests_s": 100.0,
        "messages_s": 50.0,
        "response_ms": 2.0,
        "p99_ms": 2.0,
    }
    assert (tmp_path / "evaluation.html").read_text().startswith("<!doctype html>")
    document = json.loads((tmp_path / "evaluation.json").read_text())
    assert [row["method"] for row in document["methods"]] == ["PutMessage", "ReadMessage"]
    assert [row["requests"] for row in document["buckets"]] == [100, 100]
    assert {row["phase"]: row["share"] for row in document["shares"]} == {
        "waiting": pytest.approx(0.05),
        "parsing": pytest.approx(0.05),
        "database": pytest.approx(0.75),
        "response": pytest.approx(0.15),
    }
    assert document["series"] == []


def test_a_series(spark: SparkSession, tmp_path: Path) -> None:
    """A directory a run, named for what was varied, becomes a series in its order; a run that is too short is
    left out and said to be."""
    for clients in (8, 32, 160):
        trace(tmp_path / f"clients{'=' if clients == 160 else '_'}{clients}", rate=10 * clients)
    trace(tmp_path / "clients_224", rate=10, seconds=2)
    out = tmp_path / "report"
    summary = run(spark, traces=str(tmp_path), out=str(out), warmup="1", cooldown="1", bucket="0.5")
    assert summary.facts["runs"] == 3
    assert summary.facts["requests_s"] == 1600.0
    document = json.loads((out / "evaluation.json").read_text())
    assert document["left_out"] == ["clients_224"]
    assert [(row["parameter"], row["value"], row["speedup"]) for row in document["series"]] == [
        ("clients", 8, 1.0),
        ("clients", 32, pytest.approx(4.0)),
        ("clients", 160, pytest.approx(20.0)),
    ]
    assert "Scalability over clients" in (out / "evaluation.html").read_text()


def test_traces_of_nodes_alone(spark: SparkSession, tmp_path: Path) -> None:
    """`nuncius up --trace` is enough: then requests are as the node saw them."""
    trace(tmp_path, rate=10, sides=["node"])
    run(spark, traces=str(tmp_path), warmup="0", cooldown="0")
    document = json.loads((tmp_path / "evaluation.json").read_text())
    assert document["settings"]["side"] == "node"
    assert document["methods"] == []
    (row,) = document["runs"]
    assert (row["requests_s"], row["response_ms"]) == (10, pytest.approx(2.0))


def test_traces_of_clients_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Without traces of nodes, there are no phases to tell of."""
    trace(tmp_path, rate=10, sides=["client"])
    run(spark, traces=str(tmp_path), warmup="0", cooldown="0")
    assert json.loads((tmp_path / "evaluation.json").read_text())["shares"] == []
    assert "Phases" not in (tmp_path / "evaluation.html").read_text()


def test_where_traces_are(tmp_path: Path) -> None:
    """Runs are found in the directory itself and one below, in the order of what was varied."""
    for name in ("clients_96", "clients=8", "run", "empty"):
        (tmp_path / name).mkdir()
    for name in ("clients_96", "clients=8", "run"):
        (tmp_path / name / "client-1-1.parquet").touch()
    (tmp_path / "node-1-1.parquet").touch()
    assert [(step.name, step.parameter, step.value) for step in steps_in(tmp_path)] == [
        ("run", None, None),
        (tmp_path.name, None, None),
        ("clients=8", "clients", 8),
        ("clients_96", "clients", 96),
    ]


def test_no_traces(spark: SparkSession, tmp_path: Path) -> None:
    """A directory without traces, or with too little in them, is said to be so."""
    with pytest.raises(NoTraces, match="no trace files"):
        run(spark, traces=str(tmp_path))
    trace(tmp_path, rate=10, seconds=3)
    with pytest.raises(NoTraces, match="set warmup and cooldown to less"):
        run(spark, traces=str(tmp_path))
    with pytest.raises(NoTraces, match="nothing to evaluate"):
        evaluate(None, None, [TraceStep("run", tmp_path)], EvaluationSettings("t", 0, 0, 1, "client"))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 and no end"])
def test_half_a_trace(spark: SparkSession, tmp_path: Path, content: bytes) -> None:
    """The file of a process that was killed is named, so that it can be removed."""
    trace(tmp_path, rate=10)
    (tmp_path / "node-9-9.parquet").write_bytes(content)
    with pytest.raises(NoTraces, match=r"node-9-9\.parquet is not complete"):
        run(spark, traces=str(tmp_path))


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_seconds_are_numbers(spark: SparkSession, tmp_path: Path, text: str) -> None:
    """What cannot be a time is refused before anything is read."""
    trace(tmp_path, rate=1, seconds=1)
    with pytest.raises(InvalidOption, match="'warmup' is a number of seconds"):
        run(spark, traces=str(tmp_path), warmup=text)


def test_traces_have_to_be_named(spark: SparkSession) -> None:
    """There is no default place for traces."""
    with pytest.raises(InvalidOption, match="traces"):
        run(spark)
