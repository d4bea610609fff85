"""A real Go program, with Go's own net/rpc: a client of our nodes, a holder of leases, a node of the ring.

What it checks is in `go_peer`; it needs nothing but Go's standard library. It is made twice, with the structs
of the course's edition of fall 2011 and with those of later ones.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.tribbler_ring import Ring, running_ring
from nuncius.broker import Broker
from nuncius.doors.tribbler.door import TribblerDoor
from nuncius.ring.settings import RingSettings
from nuncius.testing import free_port

GO = shutil.which("go")
SOURCES = sorted((Path(__file__).parent / "go_peer").glob("*.go"))
COMMON = {path.stem for path in SOURCES if not path.stem.startswith("edition_")}
SECONDS = 300

pytestmark = pytest.mark.skipif(GO is None, reason="Go is not installed")


@pytest.fixture(scope="session", params=["f11", "later"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of an edition, compiled without anything from elsewhere."""
    made = tmp_path_factory.mktemp("go") / "peer"
    sources = [path for path in SOURCES if path.stem in {f"edition_{request.param}", *COMMON}]
    environment = os.environ | {"GOTOOLCHAIN": "local", "GOPROXY": "off", "GOFLAGS": "", "CGO_ENABLED": "0"}
    assert GO is not None
    subprocess.run([GO, "build", "-o", made, *sources], check=True, env=environment, timeout=SECONDS)
    return made


@pytest.fixture
async def ring(dsns: list[str]) -> AsyncIterator[Ring]:
    """Three nodes with ports and stores of their own."""
    async with running_ring(dsns) as made:
        yield made


async def run(program: Path, *arguments: str) -> None:
    """The program says what surprised it, if anything did."""
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(SECONDS):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        said, _ = await process.communicate()
    assert (process.returncode, said.decode()) == (0, "ok\n")


async def test_calls(program: Path, port: int) -> None:
    """All calls with all their statuses and mistakes, by gob with and without HTTP and by JSON, thousands in
    flight, with arguments that have unknown fields and lack known ones."""
    await run(program, "calls", f"localhost:{port}")


async def test_calls_to_a_ring(program: Path, ring: Ring) -> None:
    """The same, each call to another node."""
    await run(program, "calls", *ring.nodes)


async def test_leases(program: Path, ring: Ring) -> None:
    """It holds leases that any node has passed on to it; the owners call it back before a change, and what
    waits for that is the changed key and nothing else."""
    await run(program, "leases", *ring.nodes)


async def test_a_node_in_go(program: Path, broker: Broker) -> None:
    """It is a node of our ring: it is sent the keys that it owns by Go's own hash, every call that the course
    knows, and the wish for a lease with the third question and not before."""
    door = TribblerDoor(broker, RingSettings(2**32 - 1, 2))
    try:
        await run(program, "member", f"localhost:{await door.open('localhost', 0)}")
    finally:
        await door.close()


async def test_a_master_in_go(program: Path, broker: Broker) -> None:
    """Our node registers with it, and they ask each other in the same way."""
    master = f"localhost:{free_port()}"
    door = TribblerDoor(broker, RingSettings(2**32 - 1, 1, master))
    try:
        await run(program, "master", f"localhost:{await door.open('localhost', 0)}", master)
    finally:
        await door.close()
