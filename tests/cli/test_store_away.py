"""What commands say while a node is up and its store is away."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.commands import nuncius
from nuncius import testing
from nuncius.store.server import embedded

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def node(data_dir: Path) -> Iterator[testing.Broker]:
    """A node whose server has gone."""
    server = embedded.start(data_dir)
    with testing.broker("--http-port=0", store=server.dsn) as running:
        embedded.stop(data_dir)
        yield running


def test_commands_say_so(node: testing.Broker) -> None:
    """A command does not advise to start a node that is up."""
    done = nuncius("topic", "list", "--url", node.url, "--timeout", "1")
    assert (done.returncode, done.stdout) == (4, "")
    assert f"the node at {node.url} is up, but its store does not answer" in done.stderr
    assert "nuncius up" not in done.stderr
    http = f"http://127.0.0.1:{node.ports['http']}"
    done = nuncius("top", "--once", "--http", http)
    assert f"the node at {http} is up, but its store does not answer" in done.stderr
    found = json.loads(nuncius("doctor", "--url", node.url, "-o", "json").stdout)
    (told,) = [finding for finding in found if finding["check"] == "node"]
    assert "is up, but its store does not answer" in told["detail"]


def test_no_node() -> None:
    """Where no node answers, the advice is to start one."""
    done = nuncius("topic", "list", "--url", f"nuncius://{NOWHERE}", "--timeout", "1")
    assert done.returncode == 4
    assert "start a node with: nuncius up" in done.stderr
    assert "start one with: nuncius up" in nuncius("top", "--once", "--http", f"http://{NOWHERE}").stderr
