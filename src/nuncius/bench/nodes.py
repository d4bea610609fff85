"""Nodes for benchmarks, in separate processes, as `nuncius up` and other commands start them."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

DOORS = ("telesto", "stomp", "zeromq", "http", "tribbler")


@asynccontextmanager
async def node(
    data_dir: Path, *doors: str, options: Sequence[str] = ()
) -> AsyncIterator[tuple[dict[str, int], psutil.Process]]:
    """Run a node on an embedded store with only these doors open. Yield their ports and its process."""
    chosen = [f"--{door}-port={0 if door in doors else 'off'}" for door in DOORS]
    async with leashed("nuncius", "up", "--on-leash", f"--data-dir={data_dir}", *chosen, *options) as process:
        ready = await next_line(process)
        yield ready["ports"], psutil.Process(process.pid)


@asynccontextmanager
async def leashed(module: str, *arguments: str) -> AsyncIterator[Process]:
    """Run a module that prints a JSON line when it is ready, and ends when its stdin ends."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments), stdin=PIPE, stdout=PIPE
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def next_line(process: Process) -> dict[str, Any]:
    """Return the next line of a process, decoded from JSON."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("a node did not start, or has ended")
    document: dict[str, Any] = json.loads(line)
    return document
