"""A node of a ring that also measures its own storage layer, used as the application in its process uses it.

python -m nuncius.bench.ring.node DATA_DIR ID MASTER CACHING

It reports on stdout when it is ready. For each line on stdin with a user and a number of seconds, it reports
how many of that user's keys it read per second. It ends when stdin ends.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

import uvloop

from nuncius.broker import Broker
from nuncius.doors.tribbler.door import TribblerDoor
from nuncius.ring.settings import RingSettings
from nuncius.ring.storage_ring import RingStorage
from nuncius.ring.tribbler import feed
from nuncius.ring.tribbler.model import chunk_key, post_key, posts_key
from nuncius.store.server import embedded

WARM = 5  # reads before the measurement: from the third read on, a key comes with a lease


async def hot_reads(storage: RingStorage, user: str, seconds: float) -> float:
    """Return keys per second, read in batches like a user's tribbles."""
    newest = await feed.newest(storage, [user])
    chunks = int(await storage.get(chunk_key(user)) or 0)
    lists = [posts_key(user, n) for n in range(chunks, max(chunks - 8, -1), -1)]
    posts = [post_key(user, -age) for age, user in newest]

    async def read() -> None:
        await storage.get_many([chunk_key(user)])
        await storage.get_lists(lists)
        await storage.get_many(posts)

    for _ in range(WARM):
        await read()
    rounds = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        await read()
        rounds += 1
    return rounds * (1 + len(lists) + len(posts)) / (time.perf_counter() - start)


async def serve(data_dir: Path, place: RingSettings) -> None:
    dsn = embedded.start(data_dir).dsn
    async with Broker(dsn) as broker:
        door = TribblerDoor(broker, place)
        bound = await door.open("localhost", 0)
        try:
            _say({"port": bound, "store": dsn})
            while line := await asyncio.to_thread(sys.stdin.readline):
                user, seconds = line.split()
                _say({"hot_reads": await hot_reads(door.storage, user, float(seconds))})
        finally:
            await door.close()


def _say(document: object) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def main(data_dir: str, node_id: str, master: str, caching: str) -> None:
    place = RingSettings(int(node_id), 1, master, caching=caching == "cache")
    try:
        uvloop.run(serve(Path(data_dir), place))
    finally:
        embedded.stop(Path(data_dir))


if __name__ == "__main__":
    main(*sys.argv[1:])
