"""Nodes for benchmarks, in separate processes, as `nuncius up` starts them."""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

DOORS = ("telesto", "stomp", "zeromq", "http", "tribbler")


@asynccontextmanager
async def node(data_dir: Path, *options: str) -> AsyncIterator[tuple[int, psutil.Process]]:
    """Run a node on an embedded store with the Telesto door open. Yield its port and its process."""
    async with ports_of_node(data_dir, "telesto", options=options) as (ports, process):
        yield ports["telesto"], process


@asynccontextmanager
async def ports_of_node(
    data_dir: Path, *doors: str, options: Sequence[str] = ()
) -> AsyncIterator[tuple[dict[str, int], psutil.Process]]:
    """Run a node with only these doors open. Yield their ports and its process."""
    chosen = [f"--{door}-port={0 if door in doors else 'off'}" for door in DOORS]
    with tempfile.TemporaryDirectory(prefix="nun-") as directory:
        ready = Path(directory) / "ready.json"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nuncius", "up", "--data-dir", str(data_dir)),
            *("--ready-file", str(ready), *chosen, *options),
        )
        try:
            while not ready.exists():
                if process.returncode is not None:
                    raise RuntimeError("the node did not start")
                await asyncio.sleep(0.05)
            ports: dict[str, int] = json.loads(ready.read_text())["ports"]
            yield ports, psutil.Process(process.pid)
        finally:
            process.terminate()
            await process.wait()
