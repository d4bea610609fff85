"""Nodes are killed while their consumers have messages in hand."""

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.acknowledging import lease, node
from broker.inside import put, queue
from nuncius.broker import Broker
from nuncius.broker.background import listener
from nuncius.broker.limits import Limits
from nuncius.broker.model import Letter
from nuncius.store.driver import Connection

NODE = Path(__file__).parent / "lease_node.py"
TOTAL = 3000
KILLS = 6


@dataclass
class Ledger:
    """What consumers were told: how often a message was delivered before, and what is settled."""

    leased: list[tuple[int, int]] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)

    def hear(self, line: str) -> None:
        word, body, *attempts = line.split()
        if word == "leased":
            self.leased.append((int(body), int(attempts[0])))
        else:
            self.settled.append(int(body))


@contextlib.asynccontextmanager
async def victim(dsn: str, jobs: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """A node in a process of its own; killed at the end, if it still lives."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(NODE), dsn, str(jobs), stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def run_until_killed(dsn: str, jobs: int, ledger: Ledger, lines: int) -> None:
    """A node works until it has said so many lines, and is killed in the middle of the next."""
    async with victim(dsn, jobs) as process:
        assert process.stdout is not None
        for _ in range(lines):
            ledger.hear((await process.stdout.readline()).decode())
        process.kill()
        rest = (await process.stdout.read()).decode()
        for line in rest.splitlines(keepends=True):
            if line.endswith("\n"):
                ledger.hear(line)


async def consume(broker: Broker, jobs: int, ledger: Ledger, connection: Connection) -> None:
    """Another consumer, at a node that lives, takes what is left, and what comes back."""
    left = "select exists (select from nuncius.messages) or exists (select from nuncius.leases)"
    while await connection.fetchval(left):
        for one in await lease(broker, jobs, limit=1, wait=0.1):
            ledger.leased.append((int(one.message.body), one.attempts))
            await broker.leases.settle([one.lease_id])
            ledger.settled.append(int(one.message.body))


async def test_killing_nodes_that_hold_messages(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often nodes are killed, every message is settled, none comes after it was, and whatever comes
    a second time says so."""
    monkeypatch.setattr(listener, "GRACE_SECONDS", 0.0)
    dice = random.Random(7)
    ledger = Ledger()
    async with node(dsn, Limits(retry_delay=0.02, max_attempts=100)) as broker, asyncio.timeout(200):
        jobs = await queue(broker)
        for start in range(0, TOTAL, 500):
            await put(broker, jobs, *(Letter(b"%d" % n, 1 + n % 10) for n in range(start, start + 500)))
        for _ in range(KILLS // 2):
            await asyncio.gather(
                *(run_until_killed(dsn, jobs, ledger, dice.randint(1, 200)) for _ in range(2))
            )
        await consume(broker, jobs, ledger, connection)
    seen: set[int] = set()
    for number, attempts in ledger.leased:
        assert attempts > 0 or number not in seen, "a message came again and was not marked"
        seen.add(number)
    assert seen == set(range(TOTAL)), "a message was never delivered"
    assert len(ledger.settled) == len(set(ledger.settled)), "a message came after it was settled"
    # A node may be killed when something is settled and it has not said so yet.
    assert len(ledger.settled) >= TOTAL - KILLS
