"""A write manager that is stopped and not dead, by processes."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster.http_caller import Caller
from cluster.processes import Process
from nuncius.store.driver import Connection

PRODUCERS = 4
MESSAGES = 10


@pytest.fixture
def nodes(dsn: str, tmp_path: Path) -> Iterator[dict[str, Process]]:
    roles = {"balancer": "balancer", "writer 1": "writer", "writer 2": "writer", "broker": "broker"}
    with ExitStack() as stack:
        made = {}
        for name, role in roles.items():
            process = Process(tmp_path / f"{name}.log", f"--role={role}", f"--store={dsn}")
            made[name] = stack.enter_context(process).begin()
        yield {name: each.ready() for name, each in made.items()}
        made["writer 1"].thaw()  # or it cannot hear that it should stop


async def test_a_writer_is_stopped(nodes: dict[str, Process], connection: Connection) -> None:
    """While one of two write managers is stopped, producers go on at the other one after about a second.
    Under keys everything is stored once, also when the stopped one goes on with what it was sent."""
    setup = Caller(nodes["balancer"].port)
    _, answer = await setup.call("POST", "/producer/register", {"topic": "A"})
    producer = answer["producer_id"]
    nodes["writer 1"].freeze()

    async def produce(number: int) -> None:
        caller = Caller(nodes["balancer"].port)
        for n in range(MESSAGES):
            fields = {"topic": "A", "producer_id": producer, "message": f"{number}-{n}"}
            status, answer = await caller.call("POST", "/producer/produce", fields, key=f"{number}-{n}")
            assert (status, answer["status"]) == (200, "success")
        await caller.close()

    async with asyncio.timeout(8):  # one that is waited for costs 15 seconds
        await asyncio.gather(*map(produce, range(PRODUCERS)))
    await setup.close()
    nodes["writer 1"].thaw()
    back = Caller(nodes["writer 1"].port)
    assert (await back.raw(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"))[0] == 200
    fields = {"topic": "A", "producer_id": producer, "message": "0-0"}
    assert (await back.call("POST", "/producer/produce", fields, key="0-0"))[0] == 200
    await back.close()
    assert await connection.fetchval("select count(*) from nuncius.entries") == PRODUCERS * MESSAGES
