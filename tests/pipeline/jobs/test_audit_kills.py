"""A node is killed under load, again and again, and the audit of the histories says what came of it."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from nuncius import testing
from nuncius.client import AsyncClient
from nuncius.pipeline.history import HistoryFile
from nuncius.pipeline.jobs.audit import accounts, audit
from nuncius.pipeline.jobs.auditing.findings import FAULT
from nuncius.pipeline.jobs.auditing.inputs import Inputs, Wanted, gather
from nuncius.pipeline.jobs.auditing.stored import unstored
from pipeline.auditing import said
from pipeline.filling import sql

TOPIC = "load"
KILLS, BETWEEN, WRITERS = 3, 300, 8


class Load:
    """Writers and a reader, and what they write down."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._counts = itertools.count(1)
        self._moved = asyncio.Event()
        self._over = False
        self.acknowledged = 0
        self.delivered: set[str] = set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(90):
            while not condition():
                self._moved.clear()
                await self._moved.wait()

    async def write(self, client: AsyncClient) -> None:
        with HistoryFile(self._directory, "writer") as history:
            async with asyncio.TaskGroup() as group:
                for _ in range(WRITERS):
                    group.create_task(self._write(client, history))

    async def _write(self, client: AsyncClient, history: HistoryFile) -> None:
        while not self._over:
            count = next(self._counts)
            message = f"m{count}"
            history.add("published", TOPIC, publisher="writer", publisher_count=count, message=message)
            receipt = await client.publish(TOPIC, message, key=f"{count % 7}")
            history.add(
                "acknowledged",
                TOPIC,
                partition=receipt.partition,
                offset=receipt.offset,
                publisher="writer",
                publisher_count=count,
                message=message,
            )
            self.acknowledged += 1
            self._moved.set()

    async def read(self, broker: testing.Broker, session: str) -> None:
        """One life of the reader. It ends without a farewell: what it has not confirmed comes again."""
        with HistoryFile(self._directory, session) as history:
            async with broker.async_client(timeout=60) as client:
                subscription = await client.subscribe(TOPIC, "reader", start="earliest", auto_confirm=False)
                async for batch in subscription.batches():
                    for entry in batch:
                        history.add(
                            "delivered",
                            TOPIC,
                            partition=entry.partition,
                            offset=entry.offset,
                            message=entry.text,
                            subscriber="reader",
                        )
                        self.delivered.add(entry.text)
                    self._moved.set()
                    middle = batch[len(batch) // 2]
                    await subscription.confirm(middle)
                    history.add(
                        "confirmed",
                        TOPIC,
                        partition=middle.partition,
                        offset=middle.offset,
                        subscriber="reader",
                    )

    async def run(self, broker: testing.Broker) -> None:
        async with broker.async_client(timeout=60, publisher="writer") as client:
            await client.create_topic(TOPIC, partitions=2)
            writing = asyncio.ensure_future(self.write(client))
            reading = asyncio.ensure_future(self.read(broker, "reader 0"))
            for life in range(1, KILLS + 1):
                target = self.acknowledged + BETWEEN
                await self.until(lambda target=target: self.acknowledged >= target)  # type: ignore[misc]
                await asyncio.to_thread(broker.kill)
                reading.cancel()
                await asyncio.to_thread(broker.start)
                reading = asyncio.ensure_future(self.read(broker, f"reader {life}"))
            target = self.acknowledged + BETWEEN
            await self.until(lambda: self.acknowledged >= target)
            self._over = True
            await writing
            await self.until(lambda: len(self.delivered) == self.acknowledged)
            reading.cancel()


def faults(inputs: Inputs) -> list[tuple[str, int]]:
    rows = audit(inputs.stored, inputs.history, inputs.positions, inputs.ends).collect()
    return [(row.kind, row["count"]) for row in rows if row.severity == FAULT]


def test_nothing_is_lost_and_nothing_is_doubled(spark: SparkSession, tmp_path: Path) -> None:
    """However often the node is killed, every acknowledged message is stored once and delivered in order; and
    when one is taken away, the same check says so."""
    load = Load(tmp_path)
    with testing.broker() as broker:
        asyncio.run(load.run(broker))
        inputs = gather(spark, broker.dsn, Wanted(history=str(tmp_path)))
        assert faults(inputs) == []
        topic, reader = (
            accounts(inputs.stored, inputs.history, inputs.positions).orderBy("subscriber").collect()
        )
        assert topic.published == topic.acknowledged == topic.stored == load.acknowledged
        assert reader.delivered == load.acknowledged
        inputs.release()

        sql(broker.dsn, "delete from nuncius.entries where publisher_count = 100")
        inputs = gather(spark, broker.dsn, Wanted(history=str(tmp_path)))
        assert inputs.stored is not None
        assert inputs.history is not None
        assert inputs.ends is not None
        found = said(unstored(inputs.stored, inputs.history, inputs.ends))
        assert [(kind, count) for _, _, kind, count, _ in found] == [("lost", 1), ("phantom", 1)]
        inputs.release()
