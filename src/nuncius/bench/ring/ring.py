"""A ring of three processes for `bench tribbler`: two started like `nuncius tribbler`, and one that also
measures its own storage layer."""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nuncius.ring.ring import Ring, RingPlace

IDS = [(n + 1) * (2**32 // 3) - 1 for n in range(3)]


@dataclass(frozen=True, slots=True)
class Nodes:
    stores: dict[str, str]
    """The store of each node, by its address."""
    observer: Process

    @property
    def addresses(self) -> list[str]:
        return list(self.stores)

    @property
    def ring(self) -> Ring:
        return Ring([RingPlace(node_id, address) for node_id, address in zip(IDS, self.stores, strict=True)])

    async def hot_reads(self, user: str, seconds: float) -> float:
        """Return how many of a user's keys the last node reads per second."""
        assert self.observer.stdin is not None
        self.observer.stdin.write(f"{user} {seconds}\n".encode())
        return float((await _line(self.observer))["hot_reads"])


@contextlib.asynccontextmanager
async def nodes(parent: Path, *, caching: bool = True) -> AsyncIterator[Nodes]:
    """Run the ring, with its data in this directory."""
    async with contextlib.AsyncExitStack() as stack:
        stores: dict[str, str] = {}
        master = ""
        word = "cache" if caching else "no-cache"
        for n in range(2):
            options = [f"-master={master}"] if master else ["-N=3"]
            process = await stack.enter_async_context(
                _process(
                    *(
                        "-m",
                        "nuncius",
                        "tribbler",
                        "-port=0",
                        f"-id={IDS[n]}",
                        *options,
                        f"-{word}",
                    ),
                    *(f"-data={parent / f'node-{n}'}", "-on-leash"),
                )
            )
            ready = await _line(process)
            address = f"localhost:{ready['ports']['tribbler']}"
            master = master or address
            stores[address] = ready["store"]
        observer = await stack.enter_async_context(
            _process(
                *("-m", "nuncius.bench.ring.node", str(parent / "node-2"), str(IDS[2])),
                *(master, word),
            )
        )
        ready = await _line(observer)
        stores[f"localhost:{ready['port']}"] = ready["store"]
        yield Nodes(stores, observer)


@contextlib.asynccontextmanager
async def _process(*arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=PIPE, stdout=PIPE)
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()  # this ends the process
        await process.wait()


async def _line(process: Process) -> dict[str, Any]:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("a node did not start, or has ended")
    document: dict[str, Any] = json.loads(line)
    return document
