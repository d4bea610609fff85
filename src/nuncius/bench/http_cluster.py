"""The HTTP door as the report deploys it: a balancer, managers and brokers, each in its own process."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from nuncius.bench.load.http import CONNECTIONS

ROLES = ("balancer", "writer", "reader", "reader", "broker", "broker")


@asynccontextmanager
async def cluster(data_dir: Path, roles: Sequence[str] = ROLES) -> AsyncIterator[int]:
    """Start nodes with these roles on one embedded store. Yield the port of the first."""
    async with AsyncExitStack() as stack:
        started = [await stack.enter_async_context(_node(data_dir, role)) for role in roles]
        ports = [await _port(process) for process in started]
        yield ports[0]


@asynccontextmanager
async def _node(data_dir: Path, role: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nuncius", "node", "--on-leash"),
        *("--role", role, "--port=0", "--data-dir", str(data_dir)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def _port(process: asyncio.subprocess.Process) -> int:
    assert process.stdout is not None
    ready = await process.stdout.readline()
    if not ready:
        raise RuntimeError("a node did not start")
    port: int = json.loads(ready)["ports"]["http"]
    return port


async def balanced_produce(data_dir: Path, seconds: float) -> dict[str, float]:
    """Return the single messages per second that go through the whole cluster."""
    async with cluster(data_dir) as port:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nuncius.bench.load.http", "produce", str(port), str(seconds)),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError("the load of the cluster failed")
    figures: dict[str, float] = json.loads(out)
    return {f"balanced_produce_{CONNECTIONS}": figures[f"produce_{CONNECTIONS}"]}
