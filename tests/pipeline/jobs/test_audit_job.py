"""The job `audit` on a store, on the lake, and on histories."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from nuncius.pipeline import history, jobs
from nuncius.pipeline.errors import InvalidOption
from nuncius.pipeline.history import HistoryFile
from nuncius.pipeline.jobs.audit import SHOWN, _table
from nuncius.pipeline.jobs.auditing import inputs as audit_inputs
from nuncius.pipeline.jobs.auditing.inputs import Wanted, gather
from nuncius.pipeline.jobs.job import Context
from nuncius.pipeline.lake import Lake
from pipeline.archiving import archive
from pipeline.filling import create, drop_before, fill, publish, sql


def run(spark: SparkSession, dsn: str, tmp_path: Path, **settings: str) -> dict[str, Any]:
    """The report of a run, whose facts agree with it."""
    report = tmp_path / "report.json"
    summary = jobs.find("audit").run(Context(spark, dsn, {"report": str(report), **settings}))
    document: dict[str, Any] = json.loads(report.read_text())
    assert summary.facts["faults"] == document["faults"]
    assert len(summary.facts["findings"]) == len(document["findings"]) + bool(document["findings"])  # type: ignore[arg-type]
    return document


def found(document: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (row["topic"], row["partition"], row["subscriber"], row["kind"], row["count"])
        for row in document["findings"]
    ]


def told(directory: Path, dsn: str, topic: str, messages: int) -> None:
    """Publishes messages, and writes down that it did."""
    with HistoryFile(directory) as file:
        for n in range(messages):
            sent = {"publisher": "p", "publisher_count": n + 1, "message": f"m{n}"}
            file.add("published", topic, **sent)  # type: ignore[arg-type]
        publish(dsn, topic, [f"m{n}" for n in range(messages)], publisher="p")
        for n in range(messages):
            file.add("acknowledged", topic, partition=1, offset=n, message=f"m{n}")


def test_a_store_without_faults(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """All topics are looked at; what subscribers have not confirmed is noted, and no fault."""
    fill(dsn, "news", 10, partitions=2)
    publish(dsn, "news", ["a", "b"], publisher="p")
    create(dsn, "empty")
    sql(dsn, "select nuncius.subscribe('news', 'reader', 'earliest')")
    sql(dsn, "select nuncius.confirm('news', 'reader', 4)")
    document = run(spark, dsn, tmp_path)
    assert found(document) == [("news", 1, "reader", "lag", 8), ("news", 2, "reader", "lag", 10)]
    assert (document["faults"], document["notes"], document["topics"]) == (0, 18, ["empty", "news"])
    assert document["accounts"] == [
        {**dict.fromkeys(document["accounts"][0]), "topic": "news", "stored": 22},
        {**dict.fromkeys(document["accounts"][0]), "topic": "news", "subscriber": "reader"}
        | {"confirmed": 4, "lag": 18},
    ]


def test_faults_in_a_store(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """What was done to the tables behind the broker's back is found, in the topics that were asked for."""
    create(dsn, "news")
    publish(dsn, "news", list("abcdef"), publisher="p")
    sql(dsn, "delete from nuncius.entries where entry_offset in (1, 2)")
    sql(dsn, "update nuncius.entries set publisher_count = 5 where entry_offset = 5")
    sql(dsn, "select nuncius.subscribe('news', 'reader', 'latest')")
    sql(
        dsn,
        "insert into nuncius.failures values ((select subscription_id from nuncius.subscriptions), "
        "(select partition_id from nuncius.partitions), 3, 1, now(), now())",
    )
    fill(dsn, "other", 3)
    sql(
        dsn,
        "delete from nuncius.entries where partition_id = (select max(partition_id) from nuncius.partitions)"
        " and entry_offset = 1",
    )
    document = run(spark, dsn, tmp_path, topic="news")
    assert found(document) == [
        ("news", 1, None, "gap", 2),
        ("news", 1, None, "duplicate_count", 1),
        ("news", 1, "reader", "failing", 1),
        ("news", None, None, "count_gap", 2),
    ]
    assert document["faults"] == 3
    assert found(run(spark, dsn, tmp_path, topic="other, news"))[1] == ("other", 1, None, "gap", 1)


def test_a_history_without_faults(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """What clients wrote down is compared with the store, for the topics they wrote of."""
    create(dsn, "news")
    fill(dsn, "other", 3)
    told(tmp_path / "history", dsn, "news", 5)
    document = run(spark, dsn, tmp_path, history=str(tmp_path / "history"))
    assert found(document) == []
    assert document["topics"] == ["news"]
    assert [document["accounts"][0][name] for name in ("published", "acknowledged", "stored")] == [5, 5, 5]


def test_a_history_of_what_is_not_there(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """Acknowledged entries that are gone are lost: one of them, or a whole topic."""
    create(dsn, "news")
    told(tmp_path / "history", dsn, "news", 5)
    with HistoryFile(tmp_path / "history") as file:
        file.add("acknowledged", "nowhere", partition=1, offset=0, message="x")
    sql(dsn, "delete from nuncius.entries where entry_offset = 4")
    document = run(spark, dsn, tmp_path, history=str(tmp_path / "history"))
    assert found(document) == [("news", 1, None, "lost", 1), ("nowhere", 1, None, "lost", 1)]
    assert document["findings"][0]["examples"] == ["offset 4, message m4"]


@pytest.mark.parametrize("identity", ["key", "header:id"])
def test_what_tells_messages_apart(spark: SparkSession, dsn: str, tmp_path: Path, identity: str) -> None:
    """A message is known by its value, its key or a header."""
    create(dsn, "news")
    names = ["x", "x", "y"]
    publish(dsn, "news", ["1", "2", "3"], keys=names, headers=[{"id": name} for name in names])
    assert found(run(spark, dsn, tmp_path, id=identity)) == [("news", 1, None, "duplicate_message", 1)]
    assert found(run(spark, dsn, tmp_path, id="value")) == []


def test_a_history_alone(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """A history whose broker is gone can still be looked at."""
    with HistoryFile(tmp_path / "history") as file:
        for offset in (0, 2):
            file.add("delivered", "news", partition=1, offset=offset, subscriber="s")
    document = run(spark, dsn, tmp_path, history=str(tmp_path / "history"), tier="none")
    assert found(document) == [("news", 1, "s", "skipped", 1), ("news", 1, "s", "unconfirmed", 2)]


def test_others_go_on_meanwhile(
    spark: SparkSession, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is published, delivered, confirmed and removed while the audit reads is no fault."""
    create(dsn, "news")
    publish(dsn, "news", [f"{n}" for n in range(10)])
    sql(dsn, "select nuncius.subscribe('news', 'reader', 'earliest')")
    with HistoryFile(tmp_path / "history") as file:
        for n in range(5):
            file.add("delivered", "news", partition=1, offset=n, message=f"{n}", subscriber="reader")

    entries = audit_inputs._entries  # noqa: SLF001

    def meanwhile(*arguments: Any) -> Any:
        planned = entries(*arguments)
        publish(dsn, "news", ["more"])
        drop_before(dsn, "news", 6)
        return planned

    read = history.read

    def confirmed_meanwhile(*arguments: Any) -> Any:
        events = read(*arguments)
        sql(dsn, "select nuncius.confirm('news', 'reader', 9)")
        return events

    monkeypatch.setattr(audit_inputs, "_entries", meanwhile)
    monkeypatch.setattr(history, "read", confirmed_meanwhile)
    document = run(spark, dsn, tmp_path, history=str(tmp_path / "history"))
    assert document["faults"] == 0
    assert ("news", 1, "reader", "lag", 1) in found(document)


def test_the_lake(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """What is archived is audited by itself, and together with what is live, also when the store has dropped
    it."""
    lake = tmp_path / "lake"
    create(dsn, "news")
    told(tmp_path / "history", dsn, "news", 6)
    archive(spark, dsn, lake)
    publish(dsn, "news", ["m6"], publisher="p", count=7)
    drop_before(dsn, "news", 6)
    assert found(run(spark, dsn, tmp_path, tier="lake")) == [("news", 1, "nuncius:archive", "lag", 1)]
    together = run(spark, dsn, tmp_path, tier="all", history=str(tmp_path / "history"))
    assert found(together) == [("news", 1, "nuncius:archive", "lag", 1)]
    assert together["accounts"][0]["stored"] == 7


def test_a_hole_in_the_lake(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """A file that is missing in the middle of the lake is a gap, and what was acknowledged in it is lost."""
    create(dsn, "news")
    for first in (0, 2, 4):
        publish(dsn, "news", [f"m{first}", f"m{first + 1}"])
        archive(spark, dsn, tmp_path / "lake")
    drop_before(dsn, "news", 6)
    lake = Lake(tmp_path / "lake")
    assert lake.replace(lake.files()[1:2], [])
    assert found(run(spark, dsn, tmp_path, tier="lake")) == [("news", 1, None, "gap", 2)]
    with HistoryFile(tmp_path / "history") as file:
        file.add("acknowledged", "news", partition=1, offset=3, message="m3")
    document = run(spark, dsn, tmp_path, tier="all", history=str(tmp_path / "history"))
    assert found(document) == [("news", 1, None, "lost", 1), ("news", 1, None, "gap", 2)]


def test_what_cannot_be_audited(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """Settings that make no sense are refused with a sentence that says what to do."""
    for wanted, words in (
        ({"tier": "cold"}, "'tier' is one of live"),
        ({"tier": "none"}, "nothing to audit"),
        ({"tier": "lake", "history": "h"}, "use tier=all"),
        ({"identity": "offset"}, "'id' is value, key or header:NAME"),
    ):
        with pytest.raises(InvalidOption, match=words):
            Wanted(**wanted)
    with pytest.raises(InvalidOption, match="there are no topics"):
        gather(spark, dsn, Wanted())
    with pytest.raises(InvalidOption, match="there is no topic a, b"):
        gather(spark, dsn, Wanted(topics=["a", "b"]))
    with HistoryFile(tmp_path) as file:
        file.add("published", "news")
    with pytest.raises(InvalidOption, match="tells nothing of a, b"):
        gather(spark, dsn, Wanted(topics=["a", "b"], history=str(tmp_path)))


def test_a_long_list_is_cut() -> None:
    """The summary shows the first findings below each other, and says how many more there are."""
    lines = _table(("a", "b"), [("x", "1"), *[("longer", "2")] * SHOWN])
    assert lines[:3] == ["a       b", "x       1", "longer  2"]
    assert len(lines) == SHOWN + 2
    assert lines[-1] == "... and 1 more"
    assert _table(("a",), []) == []
