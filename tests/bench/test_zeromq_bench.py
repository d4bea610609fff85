"""The load of the ZeroMQ benchmark and its figures."""

from pathlib import Path

import pytest

from bench.command import bench
from doors.zeromq.peer import node_in_a_thread
from nuncius.bench import zeromq
from nuncius.bench.load import zeromq as zeromq_load
from nuncius.bench.load.zeromq import Puts, ReqClients, get, new_topic, put, roundtrip

# What a benchmark starts is measured elsewhere: doors by their tests, loads below.
pytestmark = pytest.mark.usefixtures("unmeasured")


def test_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run measures every figure, and the engine's own beside them."""
    monkeypatch.setattr(zeromq, "ROUNDS", 1)
    document, _ = bench("zeromq", tmp_path / "figures.json", "--seconds=0.3")
    figures = document["figures"]
    assert figures.keys() >= {"put_64", "get_64", "roundtrip_ms_p50", "raw_append"}
    assert min(figures.values()) > 0


def test_the_loads(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each load does what it says."""
    monkeypatch.setattr(zeromq_load, "READ", 128)
    with node_in_a_thread(dsn) as port:
        url = f"tcp://127.0.0.1:{port}"
        assert put(url, 0.1)["put_64"] > 0
        assert get(url, 20)["get_64"] > 0
        assert roundtrip(url, 0.3)["roundtrip_ms_p50"] > 0


def test_a_wrong_answer_is_an_error(dsn: str) -> None:
    """A load that is refused measures nothing."""
    topic = new_topic()
    with node_in_a_thread(dsn) as port:
        clients = ReqClients(f"tcp://127.0.0.1:{port}", 2)
        clients.run(Puts(topic, 1))
        with pytest.raises(RuntimeError, match="e 1"):
            clients.run(Puts(topic, 1))
        clients.close()
