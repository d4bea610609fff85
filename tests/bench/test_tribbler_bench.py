"""The ring, the data and the loads of the Tribbler benchmark, and its figures."""

import asyncio
import contextlib
import io
from pathlib import Path

import pytest
from rich.console import Console

from cluster.tribbler_ring import running_ring
from nuncius.bench import tribbler
from nuncius.bench.load import tribbler as tribbler_load
from nuncius.bench.ring.data import Seeds, graph
from nuncius.doors.tribbler.rpc_client import RpcClient
from nuncius.ring.ring import NodePlace, Ring


def test_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run measures every figure, and the engine's own beside them. The job has tests of its own."""
    seconds = iter([1.0, 2.0, 2.0, 20.0])
    monkeypatch.setattr(tribbler, "_spark", contextlib.nullcontext)
    monkeypatch.setattr(tribbler, "_job", lambda *_: next(seconds))
    monkeypatch.setattr(tribbler, "ROUNDS", 1)
    monkeypatch.setattr(tribbler, "HISTORY", 300)
    monkeypatch.setattr(tribbler, "USERS", 300)
    result = tribbler.bench(Console(file=io.StringIO()), 0.2, (1000, 10_000))
    assert (result.figures["timelines_s"], result.figures["timelines_growth"]) == (20, 10)
    assert result.figures.keys() == {
        *("post", "feed_p50_ms", "feed_p99_ms", "feed_growth", "user_growth", "revoke_write_ms"),
        *("hot_reads_cached", "hot_reads_uncached", "hot_feed_cached", "hot_feed_uncached"),
        *("timelines_s", "timelines_growth", "raw_append"),
    }
    assert min(result.figures.values()) > 0
    assert {goal.name for goal in result.goals} <= result.figures.keys()


def test_the_graph() -> None:
    """A graph has as many users and follows as it is told, nobody follows anybody twice, and it is the same
    in every run."""
    rows = list(graph(200, 4000, 1))
    assert rows == list(graph(200, 4000, 1))
    assert [name for name, _, _ in rows] == [f"u{n}" for n in range(200)]
    assert sum(len(followed) for _, followed, _ in rows) == 4000
    assert all(len(set(followed)) == len(followed) == 20 for _, followed, _ in rows)
    assert all(times == sorted(times) for _, _, times in rows)


async def test_the_loads(dsn: str) -> None:
    """Each load does what it says with data that was put straight into the store."""
    async with running_ring([dsn]) as ring:
        whole = Ring([NodePlace(1, ring.nodes[0])])
        async with Seeds(whole, {ring.nodes[0]: dsn}) as seeds:
            await seeds.users(["a", "b"])
            await seeds.posts("a", list(range(1, 130)))
            await seeds.follows("b", ["a"])
        nodes = [RpcClient(ring.nodes[0])] * 3
        assert (await tribbler_load.post(nodes, 0.1, ["a", "b"]))["post"] > 0
        figures = await tribbler_load.feed(nodes, 0.1, ["b"])
        assert figures["p99_ms"] >= figures["p50_ms"] > 0
        assert (await tribbler_load.tribbles(nodes, 0.1, ["a"]))["p50_ms"] > 0
        assert (await tribbler_load.hot_feed(nodes, 0.1, ["a"]))["hot_feed"] > 0
        assert (await tribbler_load.revoke(nodes, 0.1, ["a"]))["revoke_write_ms"] > 0
        with pytest.raises(RuntimeError, match="status 1"):
            await tribbler_load.feed(nodes, 0.1, ["nobody"])
        nodes[0].close()


async def test_a_node_that_ends(tmp_path: Path) -> None:
    """A ring whose node cannot start is an error, not a long wait."""
    from nuncius.bench.ring import ring as tribbler_ring

    (tmp_path / "node-0").write_text("no directory")
    with pytest.raises(RuntimeError, match="did not start"):
        async with asyncio.timeout(60), tribbler_ring.nodes(tmp_path):
            pass
