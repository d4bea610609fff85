"""The server falls silent, as when its machine freezes: nodes go on with its standby, or end when told to."""

import asyncio
import contextlib
import time
from collections.abc import Iterator

import pytest

from fix_servers import OwnServer, Pair
from nuncius import testing
from nuncius.client import AsyncClient, NunciusError
from racing import until


@pytest.fixture
def node(pair: Pair) -> Iterator[testing.Broker]:
    """A node that knows the primary and its standby."""
    with testing.broker("--store-timeout=0.5", store=pair.dsn) as running:
        yield running


async def publish_on(client: AsyncClient, acknowledged: list[int], tried: list[int]) -> None:
    """Publish numbers and put them into a queue, one after the other."""
    while True:
        number = tried[-1] + 1
        tried.append(number)
        await asyncio.gather(client.publish("news", f"{number}"), client.put("jobs", f"{number}"))
        acknowledged.append(number)


async def test_a_node_moves_to_the_standby(node: testing.Broker, pair: Pair) -> None:
    """A node leaves a silent primary for the standby that is promoted. What was acknowledged is there once,
    in order, and so is what was under way: it is counted."""
    async with node.async_client(timeout=120) as client:
        await client.create_queue("jobs")
        acknowledged: list[int] = []
        publishing = asyncio.ensure_future(publish_on(client, acknowledged, tried := [0]))
        await until(lambda: len(acknowledged) > 20)
        pair.primary.suspend()
        before = len(acknowledged)
        await until(lambda: "the store is silent" in node.log.read_text())
        await asyncio.to_thread(pair.promote)
        await until(lambda: len(acknowledged) > before + 20)
        publishing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await publishing
        await client.ping()
        seen = [int(entry.text) for entry in await client.fetch("news", limit=10_000)]
        assert seen in (acknowledged, tried[1:])
        taken = [int(each.text) for each in await client.take_batch("jobs", 10_000, mode="time")]
        assert taken in (acknowledged, tried[1:])
    assert "Traceback" not in node.log.read_text()


@pytest.mark.parametrize("workers", [1, 2])
def test_ending_while_the_store_is_silent(own_server: OwnServer, workers: int) -> None:
    """SIGTERM ends a node within 15 seconds even if the store is silent; requests that wait get an error."""
    options = ("--http-port=0", "--tribbler-port=0", "--stomp-port=0", "--zeromq-port=0")
    with testing.broker(*options, f"--workers={workers}", store=own_server.dsn) as node:

        async def ask() -> float:
            async with node.async_client(timeout=60) as client:
                await client.publish("news", b"before")
                own_server.suspend()
                waiting = [
                    asyncio.ensure_future(client.publish("news", b"x")),
                    asyncio.ensure_future(client.topics()),
                ]
                await client.ping()
                begin = time.monotonic()
                ending = asyncio.ensure_future(asyncio.to_thread(node.stop))
                for outcome in await asyncio.gather(*waiting, return_exceptions=True):
                    assert isinstance(outcome, NunciusError)
                await ending
                return time.monotonic() - begin

        assert asyncio.run(ask()) < 15
        assert "Traceback" not in node.log.read_text()
