"""The door of real processes: several workers behind one port, `kill -9`, and what a command shows."""

import json
import urllib.request
from typing import Any

from cli.commands import nuncius
from fix_store import execute
from nuncius import testing

MESSAGES = 60


def call(port: int, method: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310  (our own node)
        return json.loads(answer.read())


def http_port(node: testing.Broker) -> int:
    port: int = node._ready["ports"]["http"]  # noqa: SLF001
    return port


def test_workers_and_kill(dsn: str) -> None:
    """Processes behind one port serve the same producers and consumers; after `kill -9` and a new start
    everything is there, and goes on where it was."""
    options = ("--http-port=0", "--workers=2", "--partition-threshold=10", "--inactive-after=1")
    with testing.broker(*options, store=dsn) as node:
        port = http_port(node)
        producer = call(port, "POST", "/producer/register", {"topic": "A"})["producer_id"]
        consumer = call(port, "POST", "/consumer/register", {"topic": "A"})["consumer_id"]
        for number in range(MESSAGES):
            message = {"topic": "A", "producer_id": producer, "message": str(number)}
            call(port, "POST", "/producer/produce", message)
        path = f"/consumer/consume?topic=A&consumer_id={consumer}"
        taken = [call(port, "GET", path)["message"] for _ in range(MESSAGES // 2)]
        assert len(call(port, "GET", "/v1/topics/A")["partitions"]) == MESSAGES // 10
        node.kill()
        node.start()
        port = http_port(node)
        assert call(port, "GET", f"/size?topic=A&consumer_id={consumer}")["size"] == MESSAGES // 2
        taken += [call(port, "GET", path)["message"] for _ in range(MESSAGES // 2)]
        assert sorted(taken, key=int) == [str(number) for number in range(MESSAGES)]
        call(port, "GET", "/v1/health")
        execute(dsn, "update nuncius.activity set last_active = now() - interval '1 h'")
        shown = nuncius("status", "--url", node.url)
        assert "INACTIVE" in shown.stdout
        assert "producer" in shown.stdout
        document = json.loads(nuncius("status", "--url", node.url, "-o", "json").stdout)
        assert "producer" in {each["kind"] for each in document["inactive"]}
