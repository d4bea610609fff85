"""What the nodes say, put together; asked of real nodes where it matters who answers."""

import asyncio
from typing import Any

import pytest

from nuncius.broker import Broker
from nuncius.broker.observe.facts import Facts
from nuncius.broker.observe.facts_page import Wish
from nuncius.cluster.members import ClusterMembers
from nuncius.console.nodes import CONNECTIONS, STATS, Answer, NodeDoesNotAnswer, Nodes
from nuncius.console.pages.clients import page_of
from nuncius.console.parts.words import NONE
from nuncius.console.shared import Shared
from nuncius.console.traffic import Latency, Traffic, combine
from nuncius.doors.http.door import HttpDoor


def stats(rate: float, p95: float | None) -> dict[str, Any]:
    amount = {"total": 10, "rate": rate}
    return {
        "processes": [{"worker": 1}, {"worker": 2}],
        "missing": [3],
        "messages": {"published": amount},
        "doors": {"stomp": {"connections": 2, "messages": {"published": amount}}},
        "queues": [{"queue_id": 7, "name": "q", "put": rate, "taken": 1.0}],
        "procedures": [
            {"name": "publish", "batches": 3, "rows": 9, "p50_ms": None, "p95_ms": p95, "p99_ms": None}
        ],
    }


def test_nodes_are_added_up() -> None:
    """Rates and connections are summed; of how long something takes the slowest node counts."""
    picture = combine([stats(1.5, 4.0), stats(2.0, None)])
    assert (picture.processes, picture.silent) == (4, 2)
    assert picture.rates["published"] == 3.5
    assert picture.rates["acked"] == 0
    assert picture.doors == {"stomp": {"connections": 4, "published": 3.5}}
    assert picture.queues == {7: (3.5, 2.0)}
    assert picture.latencies == (Latency("publish", 6, 18, None, 4.0, None),)


def connections(*ids: str) -> list[Answer]:
    return [
        Answer(
            "h:1",
            {
                "counts": {"stomp": len(ids)},
                "connections": [
                    {
                        "id": each,
                        "door": "stomp",
                        "peer": f"10.0.0.{n}:1",
                        "speaks": "1.2",
                        "identity": "" if n else "ann",
                        "mode": "full",
                        "since": "2026-01-01T00:00:00Z",
                        "last_active": "2026-01-01T00:00:00Z",
                        "bytes_in": n,
                        "bytes_out": None,
                    }
                    for n, each in enumerate(ids)
                ],
            },
        )
    ]


def test_connections_are_sorted_searched_and_paged() -> None:
    """By number rather than by letter; by any of what is shown; the total counts all."""
    answers = connections("stomp-10", "stomp-9", "stomp-11")
    for sort in ("id", "door"):
        page = page_of(answers, Wish(sort, limit=2))
        assert ([row["connection"] for row in page.rows], page.total) == (["stomp-9", "stomp-10"], 3)
    page = page_of(answers, Wish("in", descending=True))
    assert [row["in"] for row in page.rows] == ["2 B", "1 B", "0 B"]
    page = page_of(answers, Wish("id", search="ANN"))
    assert ([row["key"] for row in page.rows], page.total) == (["h:1 stomp-10"], 1)
    page = page_of(answers, Wish("identity", descending=True))
    assert [row["identity"] for row in page.rows] == ["ann", NONE, NONE]
    assert len(page_of(answers, Wish("node")).rows) == 3


async def test_nodes_are_asked(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is there answers with rates and connections; one that is not is left out."""
    monkeypatch.setattr("nuncius.console.nodes.FRESH_SECONDS", 3600.0)
    door = HttpDoor(broker)
    port = await door.open("127.0.0.1", 0)
    members = ClusterMembers(broker.store)
    await members.enter("127.0.0.1", port, 1, ["writer"])
    await members.enter("127.0.0.1", 9, 1, ["reader"])
    nodes = Nodes(Facts(broker).cluster)
    try:
        answers = await nodes.ask(STATS)
        assert [answer.node for answer in answers] == [f"127.0.0.1:{port}"]
        assert await nodes.ask(STATS) is answers, "while it is fresh"
        (connected,) = await nodes.ask(CONNECTIONS)
        assert connected.said == {"counts": {"http": 0}, "connections": [], "missing": []}, "but its own"
        traffic = Traffic(nodes)
        assert (await traffic.look()).processes == 1
        await traffic.look()
        assert len(traffic.past["published"]) == 1
        with pytest.raises(NodeDoesNotAnswer, match="gone already"):
            await nodes.disconnect(f"127.0.0.1:{port}", "http-999")
        with pytest.raises(NodeDoesNotAnswer, match="does not answer"):
            await nodes.disconnect("127.0.0.1:9", "http-1")
        with pytest.raises(NodeDoesNotAnswer, match="there is no node"):
            await nodes.disconnect("example.org:80", "http-1")
    finally:
        await nodes.close()
        await door.close()


async def test_an_answer_is_shared() -> None:
    """Who asks while an answer is fresh gets that one; what took long is not soon asked for again."""
    asked = []

    async def ask() -> int:
        asked.append(1)
        return len(asked)

    fresh, stale = Shared(ask, 3600.0), Shared(ask, 0.0)
    assert (await fresh(), await fresh()) == (1, 1)
    assert (await stale(), await stale()) == (2, 3)

    async def ask_long() -> int:
        await asyncio.to_thread(sum, range(100_000))
        return await ask()

    patient = Shared(ask_long, 0.0, respite=1e9)
    assert (await patient(), await patient()) == (4, 4)
