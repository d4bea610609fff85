"""Programs, and nodes, are killed while they have messages in hand through the native protocol and HTTP."""

import asyncio
import json
import random
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from crash.test_leases import Ledger
from nuncius import testing
from nuncius.client import AsyncClient

PROGRAM = Path(__file__).parent / "worker_program.py"
TOTAL = 400
KILLS = 8


async def work_until_killed(url: str, ledger: Ledger, lines: int) -> None:
    """A program works until it has said so many lines, and is killed in the middle of the next."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(PROGRAM), url, "jobs"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    for _ in range(lines):
        ledger.hear((await process.stdout.readline()).decode())
    process.kill()
    for line in (await process.stdout.read()).decode().splitlines(keepends=True):
        if line.endswith("\n"):
            ledger.hear(line)
    await process.wait()


async def work_on_the_rest(client: AsyncClient, ledger: Ledger) -> None:
    """Another consumer works until everything is settled."""
    while (lease := await client.lease("jobs", wait=5)) is not None:
        async with lease:
            ledger.leased.append((int(lease.message.text), lease.attempts))
        ledger.settled.append(int(lease.message.text))


@pytest.mark.timeout(240)
async def test_killing_programs(dsn: str) -> None:
    """However often programs are killed with a message in hand, another works on it; none is lost, none comes
    after it was settled, and what comes a second time says so."""
    dice = random.Random(3)
    ledger = Ledger()
    with testing.broker(store=dsn) as node:
        async with node.async_client(timeout=60) as client, asyncio.timeout(200):
            await client.create_queue("jobs")
            await client.put_batch("jobs", [str(n) for n in range(TOTAL)])
            for _ in range(KILLS // 2):
                await asyncio.gather(
                    *(work_until_killed(node.url, ledger, dice.randint(1, 60)) for _ in range(2))
                )
            await work_on_the_rest(client, ledger)
    check(ledger)


@pytest.mark.timeout(240)
async def test_killing_a_node(dsn: str) -> None:
    """When a node is killed under its consumers, what they had in hand comes to those of another node."""
    with ExitStack() as stack:
        victim, other = (stack.enter_context(testing.broker(store=dsn)) for _ in range(2))
        async with other.async_client(timeout=60) as client, asyncio.timeout(200):
            await client.create_queue("jobs")
            await client.put("jobs", "x")
            async with victim.async_client(timeout=60) as unlucky:
                lease = await unlucky.lease("jobs", wait=20)
                assert lease is not None
                victim.kill()
            again = await client.lease("jobs", wait=60)
            assert again is not None
            assert (again.attempts, again.origin) == (1, lease.origin)
            await again.settle()


def check(ledger: Ledger) -> None:
    seen: set[int] = set()
    for number, attempts in ledger.leased:
        assert attempts > 0 or number not in seen, "a message came again and was not marked"
        seen.add(number)
    assert seen == set(range(TOTAL)), "a message was never delivered"
    assert len(ledger.settled) == len(set(ledger.settled)), "a message came after it was settled"
    # A program may be killed when something is settled and it has not said so yet.
    assert len(ledger.settled) >= TOTAL - KILLS


def call(port: int, path: str, body: object) -> Any:
    url, content = f"http://127.0.0.1:{port}{path}", json.dumps(body).encode()
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310  (our own node)
        content = answer.read()
        return json.loads(content) if content else None


@pytest.mark.timeout(180)
def test_http_workers_and_a_kill(dsn: str) -> None:
    """Leases of HTTP clients are known to every process behind the port, and outlive a kill of all of
    them."""
    with testing.broker("--http-port=0", "--workers=2", store=dsn) as node:
        port = node._ready["ports"]["http"]  # noqa: SLF001
        call(port, "/v1/queues", {"name": "jobs"})
        batch = {"messages": [{"body": str(n)} for n in range(20)]}
        call(port, "/v1/queues/jobs/messages/batch", batch)
        got = [call(port, "/v1/queues/jobs/lease", {"seconds": 600})["messages"][0] for _ in range(20)]
        assert {each["body"] for each in got} == {str(n) for n in range(20)}
        for each in got[:10]:
            call(port, "/v1/queues/jobs/extend", {"leases": [each["lease"]], "seconds": 900})
            call(port, "/v1/queues/jobs/settle", {"leases": [each["lease"]]})
        node.kill()
        node.start()
        port = node._ready["ports"]["http"]  # noqa: SLF001
        call(port, "/v1/queues/jobs/settle", {"leases": [each["lease"] for each in got[10:]]})
        assert call(port, "/v1/queues/jobs/lease", {"wait": 0})["messages"] == []
