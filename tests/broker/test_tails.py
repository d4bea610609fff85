"""The recent ends of partitions: fetched once for all who read there, and never older than who asks."""

import asyncio
from typing import Any

import pytest

from broker.acknowledging import asked, gate_fetches
from broker.inside import readers, start
from nuncius.broker import Broker
from nuncius.broker.caller import NODE
from nuncius.broker.delivery.tails import PER_CHUNK, PER_ENTRY, Tails
from nuncius.broker.errors import NoSuchSubscription, NoSuchTopic, StoreError
from nuncius.broker.model import Cursor
from nuncius.store.calls.fetching import GONE
from nuncius.store.driver import Connection
from racing import terminate, until


async def reader(broker: Broker, name: str = "sue", topic: str = "news") -> Cursor:
    subscription = await broker.subscriptions.subscribe(topic, name, start="earliest")
    return await broker.subscriptions.cursor(subscription)


def count_fetches(broker: Broker) -> list[int]:
    """Grows by the number of looks that each batch carries to the store."""
    combiner = broker.topics._fetching  # noqa: SLF001
    carry_out: Any = combiner._execute  # noqa: SLF001
    counts: list[int] = []

    async def counted(connection: Connection, calls: Any, wait: bool) -> Any:
        counts.append(len(calls))
        return await carry_out(connection, calls, wait)

    combiner._execute = counted  # noqa: SLF001
    return counts


@pytest.fixture
async def partition(broker: Broker) -> int:
    """The partition of a topic "news"."""
    await broker.topics.create("news")
    return (await broker.topics.existing("news")).partition_ids[0]


async def test_fetched_once_for_all(broker: Broker) -> None:
    """Fifty readers of one topic cost one look at the store, and see the same object."""
    many = [await reader(broker, f"{n}") for n in range(50)]
    await broker.topics.publish("news", [b"a", b"b"])
    counts = count_fetches(broker)
    found = await asyncio.gather(*(each.next(10) for each in many))
    assert sum(counts) == 1
    assert len({id(piece.chunk) for piece in found}) == 1
    found[0].chunk.rendered["mine"] = "made once"
    assert found[-1].chunk.rendered == {"mine": "made once"}


async def test_pieces_of_a_chunk(broker: Broker) -> None:
    """Who takes less at a time gets pieces of the same chunk, and who comes later begins in its middle."""
    slow = await reader(broker)
    await broker.topics.publish("news", [b"%d" % n for n in range(5)])
    first, second = await slow.next(2), await slow.next(9)
    assert first.entries.bodies == [b"0", b"1"]
    assert (second.first_offset, second.next_offset) == (2, 5)
    assert second.entries.bodies == [b"2", b"3", b"4"]
    assert first.chunk is second.chunk


async def test_who_knows_more_does_not_wait_for_an_older_look(broker: Broker) -> None:
    """A reader that was woken by a new entry does not take the answer to a look from before it."""
    early, late = await reader(broker, "early"), await reader(broker, "late")
    gate = gate_fetches(broker)
    looking = start(early.next(10))
    await until(lambda: broker._tails._under_way)  # noqa: SLF001
    await until(lambda: asked(broker))
    await broker.topics.publish("news", [b"x"])
    reading = start(late.next(10))
    await until(lambda: len(broker._tails._under_way) == 2)  # noqa: SLF001
    gate.set()
    async with asyncio.timeout(60):
        assert (await reading).entries.bodies == [b"x"]
        assert (await looking).entries.bodies == [b"x"]


async def test_a_reader_that_goes_away(broker: Broker) -> None:
    """Whoever waits for the same look is not disturbed when the one who began it goes away."""
    leaving, staying = await reader(broker, "leaving"), await reader(broker, "staying")
    await broker.topics.publish("news", [b"x"])
    gate = gate_fetches(broker)
    first = start(leaving.next(10))
    await until(lambda: broker._tails._under_way)  # noqa: SLF001
    second = start(staying.next(10))
    await until(lambda: asked(broker))
    first.cancel()
    await asyncio.wait([first])
    gate.set()
    async with asyncio.timeout(60):
        assert (await second).entries.bodies == [b"x"]


async def test_a_look_that_fails(broker: Broker) -> None:
    """If the store is away for too long, everybody who waits for the same look is told, and may ask again."""
    both = [await reader(broker, name) for name in ("sue", "tom")]
    await broker.topics.publish("news", [b"x"])
    lane = broker.topics._fetching._lane  # noqa: SLF001
    patience, lane._patience = lane._patience, 0.0  # noqa: SLF001
    results = await asyncio.gather(*(each.look(10) for each in both), return_exceptions=True)
    assert [isinstance(result, StoreError) for result in results] == [True, True]
    lane._patience = patience  # noqa: SLF001
    assert [(await each.next(10)).entries.bodies for each in both] == [[b"x"], [b"x"]]


async def test_broken_connection(broker: Broker, connection: Connection) -> None:
    """A look whose connection breaks is repeated; nobody notices."""
    sue = await reader(broker)
    await broker.topics.publish("news", [b"x"])
    await sue.next(10)
    assert await terminate(connection, "nuncius fetch") == 1
    await broker.topics.publish("news", [b"y"])
    assert (await sue.next(10)).entries.bodies == [b"y"]


async def test_memory_is_bounded(broker: Broker, partition: int) -> None:
    """What was fetched longest ago is dropped when there is too much; headers and keys count, too."""
    most = 3 * (PER_CHUNK + PER_ENTRY + 1000)
    tails = Tails(broker.topics, broker.signals, most)
    for n in range(6):
        await broker.topics.publish(
            "news", [b"x" * 400], keys=["k" * 300], headers=['{"h": "%s"}' % ("h" * 291)]
        )
        await tails.fetch(partition, n, n, NODE)
    kept = [n for n in range(6) if tails.known(partition, n)]
    assert kept == [3, 4, 5]
    assert tails._bytes <= most  # noqa: SLF001
    await broker.topics.publish("news", [b"y" * 10_000])
    assert await tails.fetch(partition, 6, 6, NODE)  # one that is too large alone is kept until the next
    assert [n for n in range(7) if tails.known(partition, n)] == [6]


async def test_one_old_entry(broker: Broker, partition: int) -> None:
    """A single old entry is fetched alone, and not kept."""
    await broker.topics.publish("news", [b"%d" % n for n in range(10)])
    tails = broker._tails  # noqa: SLF001
    found = await tails.fetch_one(partition, 3, NODE)
    assert found is not None
    assert found[0].entries.bodies[found[1]] == b"3"
    assert len(found[0].entries.bodies) == 1
    assert tails.known(partition, 3) is None
    chunk = await tails.fetch(partition, 0, 0, NODE)
    assert isinstance(chunk, tuple)
    assert await tails.fetch_one(partition, 4, NODE) == (chunk[0], 4)
    await broker.topics.purge("news")
    assert await tails.fetch_one(partition, 3, NODE) is None
    assert await tails.fetch_one(partition, 10, NODE) is None


async def test_purged_entries_are_not_seen(broker: Broker, partition: int) -> None:
    """After a purge nobody sees what was there, however recently it was fetched, or is being fetched."""
    early, late = await reader(broker, "early"), await reader(broker, "late")
    await broker.topics.publish("news", [b"old"])
    assert (await early.next(10)).entries.bodies == [b"old"]
    await broker.topics.purge("news")
    await broker.topics.publish("news", [b"new"])
    assert (await late.next(10)).entries.bodies == [b"new"]

    tails = broker._tails  # noqa: SLF001
    tails.forget()
    gate = gate_fetches(broker)
    fetching = start(tails.fetch(partition, 1, 7, NODE))
    await until(lambda: asked(broker))
    await broker.topics.purge("news")
    gate.set()
    await fetching
    assert tails.known(partition, 1) is None


async def test_deleted_topics(broker: Broker, partition: int) -> None:
    """A partition that does not exist any more is gone, and its readers are told."""
    sue = await reader(broker)
    waiting = start(sue.next(10))
    await until(lambda: readers(broker) == 1)
    await broker.topics.delete("news")
    with pytest.raises((NoSuchTopic, NoSuchSubscription)):
        await waiting
    assert await broker._tails.fetch(partition, 0, 0, NODE) == GONE  # noqa: SLF001


async def test_partitions_in_turn(broker: Broker) -> None:
    """A partition that is always full does not keep a reader from the others."""
    await broker.topics.create("wide", 3)
    sue = await reader(broker, topic="wide")
    await broker.topics.publish("wide", [b"busy"] * 3000, partition=2)
    seen = [(await sue.next(100)).partition]
    await broker.topics.publish("wide", [b"quiet"], partition=1)
    await broker.topics.publish("wide", [b"quiet"], partition=3)
    seen += [(await sue.next(100)).partition for _ in range(4)]
    assert {1, 3} <= set(seen)
