"""The store goes away and comes back: clients wait or get a clear error, and service resumes by itself."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from nuncius import testing
from nuncius.client import NunciusError
from nuncius.store.server import embedded
from racing import until


@pytest.fixture
def node(data_dir: Path) -> Iterator[testing.Broker]:
    """A node on a server that the test may stop."""
    server = embedded.start(data_dir)
    with testing.broker(store=server.dsn) as running:
        yield running


async def test_everybody_waits_for_the_store(node: testing.Broker, data_dir: Path) -> None:
    """Publishing, putting, taking and reading go on when the store is back, and nothing is lost."""
    async with node.async_client(timeout=60) as client, node.async_client(timeout=60) as reader:
        await client.create_queue("jobs")
        subscription = await reader.subscribe("news", "sue")
        reading = asyncio.ensure_future(subscription.next_batch(90))
        await asyncio.gather(client.publish("warm", b"up"), client.put("jobs", b"0"))
        await reader.ping()
        await asyncio.to_thread(embedded.stop, data_dir)
        publishing = [asyncio.ensure_future(client.publish("news", f"{n}")) for n in range(20)]
        putting = [asyncio.ensure_future(client.put("jobs", f"{n}")) for n in range(1, 20)]
        assert await client.ping() < 20, "the node itself answers"
        done, _ = await asyncio.wait([*publishing, *putting], timeout=1)
        assert not done
        await asyncio.to_thread(embedded.start, data_dir)
        async with asyncio.timeout(60):
            await asyncio.gather(*publishing, *putting)
            seen = [entry.text for entry in await reading]
            while len(seen) < 20:
                seen += [entry.text for entry in await subscription.next_batch(60)]
            assert seen == [f"{n}" for n in range(20)]
            taken = await client.take_batch("jobs", 100, mode="time")
            assert sorted(int(message.text) for message in taken) == list(range(20))
    said = node.log.read_text()
    assert "store unreachable" in said
    assert "Traceback" not in said
    assert "never retrieved" not in said


async def test_a_waiting_take_survives(node: testing.Broker, data_dir: Path) -> None:
    """A take that waits while the store is killed gets a clear error or goes on waiting for its message."""
    async with node.async_client(timeout=60) as client:
        await client.create_queue("jobs")
        taking = asyncio.ensure_future(client.take("jobs", wait=90))
        await client.ping()
        running = embedded.running(data_dir)
        assert running is not None
        os.kill(running.pid, signal.SIGKILL)
        await asyncio.to_thread(embedded.start, data_dir)
        async with asyncio.timeout(60):
            await client.put("jobs", b"x")
            message = None
            with contextlib.suppress(NunciusError):
                message = await taking
            if message is None:
                message = await client.take("jobs", wait=20)
        assert message is not None
        assert message.text == "x"


async def test_clients_do_not_wait_for_ever(node: testing.Broker, data_dir: Path) -> None:
    """A client's own timeout ends its wait with a clear error; afterwards everything works by itself."""
    async with node.async_client(timeout=1) as client:
        await client.publish("news", b"before")
        await asyncio.to_thread(embedded.stop, data_dir)
        outcomes = await asyncio.gather(
            client.publish("news", b"lost"), client.topics(), return_exceptions=True
        )
        assert all(isinstance(outcome, NunciusError) for outcome in outcomes)
        await asyncio.to_thread(embedded.start, data_dir)

        async def works() -> bool:
            with contextlib.suppress(NunciusError):
                return (await client.publish("news", b"after")).offset is not None
            return False

        await until(works, 60)
        bodies = [entry.body for entry in await client.fetch("news")]
        assert bodies[0] == b"before"
        assert bodies.count(b"lost") <= 1
        assert bodies.count(b"after") >= 1
