"""What a program may do wrong with the client, and what it is told."""

import math
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from broker.inside import queue
from nuncius.broker import Broker
from nuncius.client import AsyncClient, Closed, InvalidInput
from nuncius.client.checks import MAX_WAIT
from nuncius.doors.native import convert


@pytest.mark.parametrize("body", [None, 7, ["a"], {"a": 1}, "\udcff"])
async def test_what_is_no_body(client: AsyncClient, body: Any) -> None:
    """A body is bytes or a text. What is neither is refused where it is handed in, and those beside it go
    their way."""
    beside = client.publish("news", cast("Any", bytearray(b"x")))
    with pytest.raises(InvalidInput):
        client.publish("news", body)
    assert (await beside).offset == 0


@pytest.mark.parametrize("seconds", [-1, 3601, math.inf, math.nan])
async def test_how_long_one_may_wait(client: AsyncClient, broker: Broker, seconds: float) -> None:
    """A request waits for an hour at most; who wants more is told so, and does not come back too early."""
    await queue(broker)
    waits: list[Callable[[], Awaitable[Any]]] = [
        lambda: client.take("jobs", wait=seconds),
        lambda: client.take_batch("jobs", 2, wait=seconds),
        lambda: client.lease("jobs", wait=seconds),
        lambda: client.fetch("news", wait=seconds),
        lambda: client.request("jobs", "x", timeout=seconds),
    ]
    for wait in waits:
        with pytest.raises(InvalidInput, match="3600 seconds"):
            await wait()
    assert await client.browse("jobs") == []
    assert MAX_WAIT == convert.MAX_WAIT


async def test_not_open() -> None:
    """A client that nobody has opened says so, whatever it is asked."""
    client = AsyncClient()
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: client.publish("news", b""),
        lambda: client.publish_batch("news", ["x"]),
        lambda: client.put("jobs", "x"),
        lambda: client.take("jobs"),
        lambda: client.lease("jobs"),
        lambda: client.request("jobs", "x"),
        client.topics,
    ]
    for call in calls:
        with pytest.raises(Closed, match="not open"):
            await call()


async def test_the_name_of_a_job(client: AsyncClient) -> None:
    """A subscriber does not use a name that is reserved for jobs."""
    with pytest.raises(InvalidInput, match="reserved for jobs"):
        await client.subscribe("news", "nuncius:archive")
