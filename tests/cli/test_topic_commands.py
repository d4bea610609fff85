"""`nuncius topic`."""

import json

import pytest
import typer

from cli.conftest import Commands
from nuncius.cli import amounts
from nuncius.client import Client


def test_create_and_show(run: Commands, client: Client) -> None:
    """A topic is made with its partitions and shown with them and its subscriptions."""
    assert run.well("topic", "create", "wide", "--partitions", "3") == ["topic wide has 3 partitions"]
    client.publish("wide", "a", partition=2)
    client.subscribe("wide", "reader", start="earliest").close()
    shown = [line.split() for line in run.well("topic", "show", "wide")]
    assert ["2", "0", "1", "1"] in shown
    assert ["wide", "reader", "1", "-", "no"] in shown
    document = json.loads("\n".join(run.well("topic", "show", "wide", "-o", "json")))
    assert [p["entries"] for p in document["partitions"]] == [0, 1, 0]
    assert [(s["subscriber"], s["lag"]) for s in document["subscriptions"]] == [("reader", 1)]
    assert run("topic", "create", "wide").code == 1


def test_grow(run: Commands, client: Client) -> None:
    """A topic gets more partitions, and never fewer."""
    client.create_topic("growing", partitions=2)
    assert run.well("topic", "grow", "growing", "5") == ["topic growing has 5 partitions"]
    assert len(client.topics("growing")[0].partitions) == 5
    fewer = run("topic", "grow", "growing", "4")
    assert fewer.code == 1
    assert "cannot have fewer" in fewer.err
    assert run("topic", "grow", "growing", "0").code == 2


def test_list(run: Commands, client: Client) -> None:
    """All topics are listed with their entries, subscriptions and retention."""
    client.publish_batch("listed", ["a", "b"])
    assert ["listed", "1", "2", "0", "forever"] in [line.split() for line in run.well("topic", "list")]
    documents = json.loads("\n".join(run.well("topic", "list", "-o", "json")))
    assert [t["entries"] for t in documents if t["name"] == "listed"] == [2]


def test_purge_and_delete(run: Commands, client: Client) -> None:
    """Entries are thrown away, or the whole topic; offsets go on after a purge."""
    client.publish_batch("doomed", ["a", "b"])
    assert run.well("topic", "purge", "doomed", "--yes") == ["2 entries are gone"]
    assert client.publish("doomed", "c").offset == 2
    assert run("topic", "delete", "doomed").code == 2
    assert run.well("topic", "delete", "doomed", "--yes") == ["topic doomed is deleted"]
    assert client.topics("doomed") == []


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["time", "7d"], "time 7 d"),
        (["size", "10GB"], "size 10 GB"),
        (["subscribers"], "subscribers"),
        (["forever"], "forever"),
    ],
)
def test_retention(run: Commands, client: Client, words: list[str], shown: str) -> None:
    """Retention is set in words and units of people."""
    client.publish("kept", "a")
    assert run.well("topic", "set-retention", "kept", *words) == [f"topic kept keeps entries: {shown}"]


@pytest.mark.parametrize("words", [["time"], ["time", "soon"], ["forever", "7d"], ["size", "0"], ["later"]])
def test_bad_retention(run: Commands, words: list[str]) -> None:
    """A retention without its amount, or with a wrong one, is wrong use."""
    done = run("topic", "set-retention", "kept", *words)
    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("5min", 300), ("2 h", 7200), ("1w", 604800)])
def test_times(text: str, seconds: int) -> None:
    """Times are numbers with a unit, seconds without one."""
    assert amounts.seconds(text) == seconds


@pytest.mark.parametrize(("text", "size"), [("5", 5), ("2k", 2000), ("3MB", 3_000_000), ("1GiB", 1 << 30)])
def test_sizes(text: str, size: int) -> None:
    """Sizes are numbers with a unit, of 1000 or, with an i, of 1024."""
    assert amounts.size(text) == size


def test_negative_amount() -> None:
    """Nothing is less than nothing."""
    with pytest.raises(typer.BadParameter):
        amounts.size("-5")


def test_subscriptions(run: Commands, client: Client) -> None:
    """Subscriptions are listed, by topic or by subscriber, and can be ended."""
    for subscriber in ("anna", "bert"):
        client.subscribe("shared", subscriber).close()
    assert len(run.well("topic", "subscriptions", "shared")) == 3
    found = run.well("topic", "subscriptions", "--subscriber", "bert", "-o", "json")
    assert [s["topic"] for s in json.loads("\n".join(found))] == ["shared"]
    ended = run.well("topic", "unsubscribe", "shared", "anna")
    assert ended == ["the subscription of anna to shared is ended"]
    assert [s.subscriber for s in client.subscriptions("shared")] == ["bert"]
    again = run("topic", "unsubscribe", "shared", "anna")
    assert (again.code, again.err) == (1, "nuncius: 'anna' is not subscribed to 'shared'\n")


def test_missing_topic(run: Commands) -> None:
    """Whoever names a topic that does not exist is told how to make it."""
    advice = "nuncius: there is no topic 'none'; make it with: nuncius topic create none\n"
    for arguments in (["show"], ["purge", "--yes"], ["subscriptions"]):
        done = run("topic", *arguments, "none")
        assert (done.code, done.err) == (1, advice)
    assert run("topic", "set-retention", "none", "forever").err == advice
    assert run("topic", "grow", "none", "2").err == advice
    assert run("tail", "none").err == advice


def test_changes_for_programs(run: Commands, client: Client) -> None:
    """What was done with a topic is a document on one line for programs."""

    def said(*arguments: str) -> object:
        (line,) = run.well("topic", *arguments, "-o", "json")
        return json.loads(line)

    assert said("create", "spoken", "-p", "2") == {"topic": "spoken", "partitions": 2}
    assert said("grow", "spoken", "3") == {"topic": "spoken", "partitions": 3}
    kept = {"topic": "spoken", "retention": "time", "seconds": 604800, "bytes": None}
    assert said("set-retention", "spoken", "time", "7d") == kept
    client.subscribe("spoken", "bert")
    ended = {"topic": "spoken", "subscriber": "bert", "ended": True}
    assert said("unsubscribe", "spoken", "bert") == ended
    client.publish("spoken", "x")
    assert said("purge", "spoken", "--yes") == {"topic": "spoken", "removed": 1}
    assert said("delete", "spoken", "--yes") == {"topic": "spoken", "deleted": True}
