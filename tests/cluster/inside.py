"""Clusters in one process: nodes with different roles on the databases of a test."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from nuncius.broker import Broker
from nuncius.cluster.roles import Participant

PULSE = 0.05


@dataclass(frozen=True, slots=True)
class Node:
    broker: Broker
    participant: Participant

    async def crash(self) -> None:
        """As a kill would: nobody is told, connections just end."""
        participant = self.participant
        watch = participant.watch
        assert watch.task is not None
        watch.task.cancel()
        watch.task = None
        server = participant.server
        server.hang_up()
        if participant.own is not None:
            await participant.own.holding.close()


@asynccontextmanager
async def node(
    dsn: str,
    *roles: str,
    port: int,
    own_store: str | None = None,
    silence: float = 5.0,
    rebalance_after: float = 60.0,
) -> AsyncIterator[Node]:
    """A node with these roles; `port` is where its HTTP door would be."""
    async with Broker(dsn, patience=20) as broker:
        participant = Participant(
            broker, roles, own_store=own_store, pulse=PULSE, rebalance_after=rebalance_after
        )
        participant.members.silence = participant.placement.silence = silence
        await participant.open("127.0.0.1")
        try:
            await participant.enter("127.0.0.1", port)
            try:
                yield Node(broker, participant)
            finally:
                await participant.leave()
        finally:
            await participant.close()


async def bodies(broker: Broker, name: str) -> dict[int, Sequence[bytes]]:
    """What each partition of a topic has."""
    topic = await broker.topics.existing(name)
    found: dict[int, Sequence[bytes]] = {}
    for partition in range(1, len(topic.partition_ids) + 1):
        entries = await broker.topics.fetch(topic, partition, 0, 10_000)
        found[partition] = [] if entries is None else entries.bodies
    return found


def everything(found: dict[int, Sequence[bytes]]) -> list[bytes]:
    return sorted(body for each in found.values() for body in each)
