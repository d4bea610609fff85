"""The synchronous client is generated and typed, and the clients need little else of the package."""

import subprocess
import sys
from concurrent.futures import Future
from typing import assert_type

import sync_client
from nuncius import AsyncClient, Client
from nuncius.client import AsyncLease, Entry, Lease, Receipt

LOADED = """
import sys
before = set(sys.modules)
import nuncius.client
for name in set(sys.modules) - before:
    if name.startswith("nuncius.") or "site-packages" in str(getattr(sys.modules[name], "__file__", "")):
        print(name)
"""


def test_it_is_current() -> None:
    """The files are what the asyncio client says; if not, run tools/sync_client.py."""
    assert sync_client.outdated() == {}


def test_importing_the_client() -> None:
    """The client imports msgspec, the limits and the packets of the native protocol, and nothing else."""
    run = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, timeout=60
    )
    rooms = {".".join(name.split(".")[:2]) for name in run.stdout.split()}
    # msgspec uses typing_extensions if it is there.
    others = {room for room in rooms if not room.startswith(("msgspec", "typing_extensions"))}
    assert others == {"nuncius.client", "nuncius.limits", "nuncius.wire"}


def with_types(client: Client) -> None:
    """Check, with mypy, the types that a synchronous program sees."""
    assert_type(client.publish("t", "x", key="k"), Receipt)
    assert_type(client.publish_soon("t", "x"), Future[Receipt])
    assert_type(client.lease("q"), Lease | None)
    assert_type(client.subscribe("t", "me").next_batch(), list[Entry])
    client.publish("t", 1)  # type: ignore[arg-type]
    client.create_topic("t", 3)  # type: ignore[call-arg]


async def with_types_and_asyncio(client: AsyncClient) -> None:
    """Check, with mypy, the types that an asyncio program sees."""
    assert_type(await client.publish("t", "x", key="k"), Receipt)
    assert_type(await client.lease("q"), AsyncLease | None)
    async for entry in await client.subscribe("t", "me"):
        assert_type(entry, Entry)
