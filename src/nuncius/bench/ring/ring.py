"""A ring of three processes for `bench tribbler`: two started like `nuncius tribbler`, and one that also
measures its own storage layer."""

import contextlib
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from nuncius.bench.nodes import leashed, next_line
from nuncius.ring.ring import NodePlace, Ring

IDS = [(n + 1) * (2**32 // 3) - 1 for n in range(3)]


@dataclass(frozen=True, slots=True)
class BenchRing:
    stores: dict[str, str]
    """The store of each node, by its address."""
    observer: Process

    @property
    def addresses(self) -> list[str]:
        return list(self.stores)

    @property
    def ring(self) -> Ring:
        return Ring([NodePlace(node_id, address) for node_id, address in zip(IDS, self.stores, strict=True)])

    async def hot_reads(self, user: str, seconds: float) -> float:
        """Return how many of a user's keys the last node reads per second."""
        assert self.observer.stdin is not None
        self.observer.stdin.write(f"{user} {seconds}\n".encode())
        return float((await next_line(self.observer))["hot_reads"])


@contextlib.asynccontextmanager
async def nodes(parent: Path, *, caching: bool = True) -> AsyncIterator[BenchRing]:
    """Run the ring, with its data in this directory."""
    async with contextlib.AsyncExitStack() as stack:
        stores: dict[str, str] = {}
        master = ""
        word = "cache" if caching else "no-cache"
        for n in range(2):
            options = [f"-master={master}" if master else "-N=3", f"-{word}", f"-data={parent / f'node-{n}'}"]
            process = await stack.enter_async_context(
                leashed("nuncius", "tribbler", "-port=0", f"-id={IDS[n]}", *options, "-on-leash")
            )
            ready = await next_line(process)
            address = f"localhost:{ready['ports']['tribbler']}"
            master = master or address
            stores[address] = ready["store"]
        observer = await stack.enter_async_context(
            leashed("nuncius.bench.ring.node", str(parent / "node-2"), str(IDS[2]), master, word)
        )
        ready = await next_line(observer)
        stores[f"localhost:{ready['port']}"] = ready["store"]
        yield BenchRing(stores, observer)
