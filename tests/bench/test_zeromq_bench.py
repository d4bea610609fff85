"""The load of the ZeroMQ benchmark and its figures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from doors.zeromq.peer import node_in_a_thread
from nuncius.bench import zeromq_load
from nuncius.bench.zeromq_load import Clients, Puts, get, new_topic, put, roundtrip


@pytest.mark.timeout(180)
def test_the_figures(tmp_path: Path) -> None:
    """A run measures every figure, and the engine's own beside them."""
    file = tmp_path / "figures.json"
    subprocess.run(
        [sys.executable, "-m", "nuncius", "bench", "zeromq", "--seconds=1", f"--json={file}"],
        check=True,
        timeout=150,
        capture_output=True,
    )
    document = json.loads(file.read_text())
    assert document["name"] == "zeromq"
    figures = document["figures"]
    assert figures.keys() >= {"put_64", "get_64", "roundtrip_ms_p50", "raw_append"}
    assert min(figures.values()) > 0


def test_the_loads(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each load does what it says, also again."""
    monkeypatch.setattr(zeromq_load, "READ", 128)
    with node_in_a_thread(dsn) as port:
        url = f"tcp://127.0.0.1:{port}"
        for _ in range(2):
            assert put(url, 0.2)["put_64"] > 0
            assert get(url, 20)["get_64"] > 0
            assert roundtrip(url, 0.5)["roundtrip_ms_p50"] > 0


def test_a_wrong_answer_is_an_error(dsn: str) -> None:
    """A load that is refused measures nothing."""
    topic = new_topic()
    with node_in_a_thread(dsn) as port:
        clients = Clients(f"tcp://127.0.0.1:{port}", 2)
        clients.run(Puts(topic, 1))
        with pytest.raises(RuntimeError, match="e 1"):
            clients.run(Puts(topic, 1))
        clients.close()
