"""A ring of real nodes with real ports, in a thread of its own, for tests that are not asynchronous."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from nuncius.broker import Broker
from nuncius.doors.tribbler.door import TribblerDoor
from nuncius.ring.settings import RingSettings

SECONDS = 120


@dataclass(frozen=True, slots=True)
class Ring:
    """Where the nodes are."""

    nodes: Sequence[str]
    dsns: Sequence[str]


@contextlib.asynccontextmanager
async def running_ring(
    dsns: Sequence[str], *, caching: bool = True, timelines_from: int = 200
) -> AsyncIterator[Ring]:
    """One node a store; they share the circle evenly. Ready when every node is in the ring."""
    ids = [(n + 1) * (2**32 // len(dsns)) - 1 for n in range(len(dsns))]
    async with contextlib.AsyncExitStack() as stack:
        nodes: list[str] = []
        for node_id, dsn in zip(ids, dsns, strict=True):
            broker = await stack.enter_async_context(Broker(dsn, patience=20))
            master = nodes[0] if nodes else ""
            place = RingSettings(node_id, len(dsns), master, 1, False, caching, timelines_from)
            door = TribblerDoor(broker, place)
            stack.push_async_callback(door.close)
            nodes.append(f"localhost:{await door.open('localhost', 0)}")
        yield Ring(nodes, dsns)


@contextlib.contextmanager
def ring_in_a_thread(dsns: Sequence[str], *, timelines_from: int = 200) -> Iterator[Ring]:
    ready: Future[Ring] = Future()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        try:
            async with running_ring(dsns, timelines_from=timelines_from) as ring:
                ready.set_result(ring)
                await stop.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise

    def run() -> None:
        with contextlib.closing(loop):
            loop.run_until_complete(serve())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield ready.result(SECONDS)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
