"""The HTTP door as the report deploys it: a balancer, managers and brokers, each in its own process."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from nuncius.bench.nodes import leashed, next_line

ROLES = ("balancer", "writer", "reader", "reader", "broker", "broker")


@asynccontextmanager
async def cluster(data_dir: Path, roles: Sequence[str] = ROLES) -> AsyncIterator[int]:
    """Start nodes with these roles on one embedded store. Yield the port of the first."""
    options = ("node", "--on-leash", "--port=0", f"--data-dir={data_dir}")
    async with AsyncExitStack() as stack:
        started = [
            await stack.enter_async_context(leashed("nuncius", *options, f"--role={role}")) for role in roles
        ]
        ready = [await next_line(process) for process in started]
        yield ready[0]["ports"]["http"]
