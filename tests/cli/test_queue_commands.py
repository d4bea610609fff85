"""`nuncius queue` and `nuncius status`."""

import json
import os
import pty
import subprocess

from cli.commands import NUNCIUS, nuncius
from cli.conftest import Commands
from fix_store import execute
from nuncius.client import Client
from nuncius.testing import Broker


def test_create_and_show(run: Commands, client: Client) -> None:
    """A queue is made once, shown with what is in it, and its name is taken then."""
    run.well("queue", "create", "made")
    client.put_batch("made", ["a", "b"])
    shown = run.well("queue", "show", "made")
    assert shown[0] == "queue     made"
    assert "messages  2" in shown
    document = json.loads("\n".join(run.well("queue", "show", "made", "-o", "json")))
    assert (document["name"], document["depth"]) == ("made", 2)
    again = run("queue", "create", "made")
    assert (again.code, again.err) == (1, "nuncius: there is a queue 'made' already\n")


def test_changes_for_programs(run: Commands, client: Client) -> None:
    """What was done with a queue is a document on one line for programs."""

    def said(*arguments: str) -> object:
        (line,) = run.well("queue", *arguments, "-o", "json")
        return json.loads(line)

    made = said("create", "spoken")
    (queue,) = client.queues("spoken")
    assert made == {"queue": "spoken", "id": queue.queue_id}
    client.put("spoken", "x")
    assert said("purge", "spoken", "--yes") == {"queue": "spoken", "removed": 1}
    assert said("delete", "spoken", "--yes") == {"queue": "spoken", "deleted": True}


def test_list(run: Commands, client: Client) -> None:
    """All queues are listed, for people and for programs."""
    client.create_queue("listed")
    assert any(line.split() == ["listed", "0", "-"] for line in run.well("queue", "list"))
    assert "listed" in [q["name"] for q in json.loads("\n".join(run.well("queue", "list", "-o", "json")))]


def test_browse(run: Commands, client: Client) -> None:
    """Looking at messages, oldest first and from any place on, does not take them."""
    client.create_queue("browsed")
    ids = [client.put("browsed", f"{n}", priority=n).message_ids[0] for n in (3, 9, 5)]
    assert run.well("queue", "browse", "browsed") == ["3", "9", "5"]
    assert run.well("queue", "browse", "browsed", "-n", "1", "--after", str(ids[0])) == ["9"]
    assert [json.loads(line)["id"] for line in run.well("queue", "browse", "browsed", "-o", "json")] == ids
    assert client.queues("browsed")[0].depth == 3


def test_purge_and_delete(run: Commands, client: Client) -> None:
    """Messages, or the whole queue with them, are thrown away when the user is sure."""
    client.create_queue("doomed")
    client.put_batch("doomed", ["a", "b"])
    assert run.well("queue", "purge", "doomed", "--yes") == ["2 messages are gone"]
    assert run.well("queue", "delete", "doomed", "-y") == ["queue doomed is deleted"]
    assert client.queues("doomed") == []


def test_nobody_to_ask(run: Commands, client: Client) -> None:
    """Without a terminal and without --yes nothing is destroyed."""
    client.create_queue("kept")
    for verb in ("purge", "delete"):
        done = run("queue", verb, "kept")
        assert done.code == 2
        assert "pass --yes" in done.err
    assert client.queues("kept")


def test_asking(broker: Broker, client: Client) -> None:
    """On a terminal the user is asked, and a no is a no."""
    client.create_queue("asked")
    master, slave = pty.openpty()
    os.write(master, b"n\n")
    done = subprocess.run(
        [*NUNCIUS, "queue", "delete", "asked", "--url", broker.url],
        stdin=slave,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    os.close(slave)
    os.close(master)
    assert done.returncode == 1
    assert "Delete queue asked with all its messages?" in done.stdout
    assert client.queues("asked")


def test_missing_queue(run: Commands) -> None:
    """Whoever names a queue that does not exist is told how to make it."""
    advice = "nuncius: there is no queue 'no such'; make it with: nuncius queue create 'no such'\n"
    for arguments in (["show", "no such"], ["browse", "no such"], ["purge", "no such", "--yes"]):
        done = run("queue", *arguments)
        assert (done.code, done.err) == (1, advice)
    assert run("queue", "delete", "no such", "--yes").err == "nuncius: there is no queue 'no such'\n"


def test_bad_name(run: Commands) -> None:
    """A name that no queue can have is wrong use."""
    done = run("queue", "create", "a\x1bb")
    assert done.code == 2
    assert "control characters" in done.err


def test_no_node() -> None:
    """Without a node the command says in one line how to get one, and ends with a code of its own."""
    done = nuncius("queue", "list", "--url", "nuncius://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.endswith("start a node with: nuncius up\n")
    assert len(done.stderr.splitlines()) == 1


def test_bad_url(run: Commands) -> None:
    """An address that is none is wrong use."""
    done = run("status", "--url", "http://example.org")
    assert done.code == 2
    assert "looks like nuncius://" in done.err


def test_status(run: Commands, client: Client) -> None:
    """Status shows node, store, queues, topics and subscriptions."""
    client.create_queue("seen")
    client.publish("heard", "a")
    client.subscribe("heard", "ear", start="earliest").close()
    shown = "\n".join(run.well("status"))
    for words in ("postgresql", "seen", "heard", "ear"):
        assert words in shown
    document = json.loads("\n".join(run.well("status", "-o", "json")))
    assert document["node"]["postgresql"].startswith("18")
    assert "seen" in [queue["name"] for queue in document["queues"]]
    (topic,) = document["topics"]
    assert (topic["name"], topic["entries"]) == ("heard", 1)
    (subscription,) = document["subscriptions"]
    assert (subscription["subscriber"], subscription["lag"]) == ("ear", 1)


def test_what_could_not_be_delivered(run: Commands, client: Client, broker: Broker) -> None:
    """Status counts what consumers and subscribers could not take, by destination and subscriber, with the
    number of attempts and the latest reason."""
    assert json.loads("\n".join(run.well("status", "-o", "json")))["failures"] == []
    client.create_queue("failing")
    client.put_batch("failing", ["a", "b"])
    execute(
        broker.dsn,
        "select nuncius.release_many(array_agg(message_id), array['one', 'two\033[1m'], 3600, 10)"
        " from nuncius.queues q, nuncius.lease_many("
        "  1000, 1, array[q.queue_id], '{0}', '{0}', '{0}', '{1}', '{2}') where q.queue_name = 'failing'",
    )
    (line,) = [line for line in run.well("status") if line.startswith("/queue/failing")]
    assert line.split()[:4] == ["/queue/failing", "-", "2", "1"]
    assert line.split()[-1] in ("one", r"two\x1b[1m")
    (failing,) = json.loads("\n".join(run.well("status", "-o", "json")))["failures"]
    assert (failing["destination"], failing["subscriber"]) == ("/queue/failing", None)
    assert (failing["failures"], failing["attempts"]) == (2, 1)
    assert failing["reason"] in ("one", "two\033[1m")
    client.publish("failing", "c")
    client.subscribe("failing", "ear", start="earliest").close()
    for _ in range(2):
        execute(
            broker.dsn,
            "select nuncius.fail_many(array[subscription_id], array[partition_id], '{0}', '{three}', 99, 10)"
            " from nuncius.subscriptions join nuncius.partitions using (topic_id)",
        )
    (line,) = [line for line in run.well("status") if line.startswith("/topic/failing")]
    assert line.split()[:4] == ["/topic/failing", "ear", "1", "2"]
