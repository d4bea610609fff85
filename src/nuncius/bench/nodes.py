"""Nodes for benchmarks, in processes of their own, as `nuncius up` starts them."""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

CLOSED = [f"--{door}-port=off" for door in ("stomp", "zeromq", "http", "tribbler")]


@asynccontextmanager
async def node(data_dir: Path, *options: str) -> AsyncIterator[tuple[int, psutil.Process]]:
    """A node on an embedded store; its port and its process."""
    with tempfile.TemporaryDirectory(prefix="nun-") as directory:
        ready = Path(directory) / "ready.json"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nuncius", "up", "--data-dir", str(data_dir)),
            *("--ready-file", str(ready), "--telesto-port", "0", *CLOSED, *options),
        )
        try:
            while not ready.exists():
                if process.returncode is not None:
                    raise RuntimeError("the node did not start")
                await asyncio.sleep(0.05)
            port: int = json.loads(ready.read_text())["ports"]["telesto"]
            yield port, psutil.Process(process.pid)
        finally:
            process.terminate()
            await process.wait()
