"""Nodes of a ring are killed: what was acknowledged stays, and leases that are out there are honoured."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from doors.tribbler.ring_process import RingProcess
from fix_store import new_folder
from nuncius.doors.tribbler.rpc_client import RpcClient
from nuncius.doors.tribbler.storage_peer import RpcPeer
from nuncius.ring.ring import hash_of
from nuncius.ring.storage import NoAnswer, StorageError
from nuncius.store.calls.keys import APPEND, PUT
from nuncius.store.server import embedded
from racing import until

HALF = 2**31


@pytest.fixture
def directory() -> Iterator[Path]:
    """A working directory with a short path; the servers in it are stopped afterwards."""
    made = new_folder()
    try:
        yield made
    finally:
        for data in (made / "nuncius-data").glob("tribbler-*"):
            embedded.stop(data)
        shutil.rmtree(made)


@pytest.fixture
def nodes(directory: Path) -> Iterator[tuple[RingProcess, RingProcess]]:
    """A ring of two: the master owns the lower half."""
    with contextlib.ExitStack() as stack:
        master = RingProcess(directory, "-N=2", f"-id={HALF}").start()
        stack.callback(master.stop)
        other = RingProcess(directory, f"-master={master.address}", "-id=4294967295").start()
        stack.callback(other.stop)
        yield master, other


def key_in(upper: bool, number: int = 0) -> str:
    names = (f"{n}user{n}:x" for n in range(1000))
    return [name for name in names if (hash_of(name) > HALF) == upper][number]


async def test_an_owner_is_killed(nodes: tuple[RingProcess, RingProcess], directory: Path) -> None:
    """With leases out and writes under way. The process after it answers reads at once, changes nothing while
    a lease may last, and has everything that was acknowledged. Then the same happens to the master."""
    master, other = nodes
    assert (directory / "nuncius-data" / f"tribbler-{other.port}" / "nuncius.json").exists()
    through = RpcPeer(RpcClient(master.address))
    key, lists = key_in(upper=True), key_in(upper=True, number=1)
    assert await through.write(PUT, key, "old", None) == 0
    assert (await through.read(False, [key], [False], ""))[0].value == "old"
    acknowledged: list[str] = []
    unknown: list[str] = []
    dead = asyncio.Event()

    async def append(name: int) -> None:
        n = 0
        while not dead.is_set():
            item = f"{name} {n}"
            try:
                assert await through.write(APPEND, lists, item, None) == 0
                acknowledged.append(item)
            except (StorageError, NoAnswer):
                unknown.append(item)
                return
            n += 1

    appending = [asyncio.ensure_future(append(n)) for n in range(8)]
    await until(lambda: len(acknowledged) >= 100)
    before = time.monotonic()
    assert (await through.read(False, [key], [True], "localhost:1"))[0].lease_seconds == 5
    await asyncio.to_thread(other.kill)
    dead.set()
    await asyncio.to_thread(other.start)
    await asyncio.gather(*appending)

    direct = RpcPeer(RpcClient(other.address))
    writing = asyncio.ensure_future(direct.write(PUT, key, "new", None))
    found = await direct.read(True, [lists], [False], "")
    assert isinstance(found[0].value, list)
    assert set(acknowledged) <= set(found[0].value) <= set(acknowledged) | set(unknown)
    assert len(found[0].value) == len(set(found[0].value))
    if time.monotonic() < before + 5:
        assert (await direct.read(False, [key], [False], ""))[0].value == "old"
    assert await writing == 0
    assert time.monotonic() >= before + 5
    assert (await through.read(False, [key], [False], ""))[0].value == "new"

    mine = key_in(upper=False)
    assert await direct.write(PUT, mine, "kept", None) == 0
    await asyncio.to_thread(master.kill)
    waiting = asyncio.ensure_future(direct.read(False, [mine], [False], ""))
    await asyncio.to_thread(master.start)
    assert (await waiting)[0].value == "kept"
    assert (await RpcPeer(RpcClient(master.address)).read(False, [key], [False], ""))[0].value == "new"
    assert [await asyncio.to_thread(node.stop) for node in (other, master)] == [0, 0]
