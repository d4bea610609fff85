"""The same message through every listener: whatever one protocol puts, every other one takes."""

import pytest

from doors.matrix.house import open_house
from doors.matrix.queue_ways import PUTTERS, TAKERS, Putter


@pytest.mark.parametrize("kind", PUTTERS, ids=lambda kind: kind.__name__.removeprefix("Put"))
async def test_every_consumer_gets_what_one_client_puts(
    dsn: str,
    no_safety_net: None,  # noqa: ARG001  (in force while it runs)
    kind: type[Putter],
) -> None:
    """Every kind of consumer gets all bodies, oldest first, byte for byte or as its page says; then
    the queues are empty."""
    putter = kind()
    async with open_house(dsn) as house:
        for taker in TAKERS:
            queue = taker.__name__
            queue_id = await house.native.create_queue(queue)
            await putter.put(house, queue, queue_id, list(putter.carries.values()))
            taking = taker().bodies(house, queue, queue_id)
            for name, body in putter.carries.items():
                assert await anext(taking) == taker.renders(body), (queue, name)
            await taking.aclose()
        assert {state.depth for state in await house.native.queues()} == {0}
