"""Requests while the store accepts no writes: its failure, not the client's, and over by itself."""

import pytest

from doors.http.peer import running_node
from doors.http.test_report import produce, producer
from fix_servers import OwnServer
from racing import until


async def test_a_demoted_server(own_server: OwnServer, caplog: pytest.LogCaptureFixture) -> None:
    """When the server is demoted under a node, what would write is a 503, and so is `/readyz`; when it is
    promoted again, the node goes on."""
    async with running_node(own_server.dsn, patience=0.5) as node:
        me = await producer(node)
        assert (await produce(node, me, "1")).status == 200
        assert (await node.post("/v1/queues", {"name": "before"})).status == 201
        own_server.accept_writes(yes=False)
        requests = {
            "/v1/topics/A/messages": {"body": "x"},
            "/v1/queues": {"name": "q"},
            "/v1/queues/before/messages": {"body": "x"},
            "/v1/queues/before/take": {},
        }
        for path, body in requests.items():
            answer = await node.post(path, body)
            assert (answer.status, answer.json["error"]) == (503, "unavailable"), path
            assert "accepts no writes" in answer.json["message"]
        assert (await produce(node, me, "2")).status == 503

        async def is_ready(status: int) -> bool:
            return (await node.get("/readyz")).status == status

        await until(lambda: is_ready(503))
        own_server.accept_writes(yes=True)
        await until(lambda: is_ready(200))
        assert (await produce(node, me, "3")).status == 200
        taken = await node.post("/v1/queues/before/take", {})
        assert taken.json["messages"] == []
    assert "Traceback" not in caplog.text
