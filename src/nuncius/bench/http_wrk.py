"""wrk as the generator of HTTP load, where it is installed: C code in one thread."""

import asyncio
import json
import math
import resource
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from nuncius.bench.load.http_sockets import LoadResult

SCRIPT = Path(__file__).with_suffix(".lua")
PATIENCE = "10s"  # an answer that takes longer is an error


def program() -> str | None:
    return shutil.which("wrk")


async def run(wrk: str, port: int, requests: Sequence[bytes], connections: int, seconds: float) -> LoadResult:
    """Send these requests in turn, on any free connection. wrk runs for whole seconds, rounded up."""
    with tempfile.NamedTemporaryFile(prefix="nun-", suffix=".http") as file:
        file.write(b"\0".join(requests))
        file.flush()
        before = _cpu_of_children()
        process = await asyncio.create_subprocess_exec(
            *(wrk, "--threads=1", f"--connections={connections}", f"--duration={math.ceil(seconds)}s"),
            *(f"--timeout={PATIENCE}", f"--script={SCRIPT}", f"http://127.0.0.1:{port}/", "--", file.name),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        cpu = _cpu_of_children() - before
    if process.returncode:
        raise RuntimeError(f"wrk failed: {out.decode(errors='replace')}")
    return _outcome(out, cpu)


def _outcome(out: bytes, cpu: float) -> LoadResult:
    said: dict[str, float] = json.loads(out.splitlines()[-1])
    answered, seconds = int(said.pop("answered")), said.pop("seconds")
    if any(said.values()):
        errors = ", ".join(f"{int(count)} {kind}" for kind, count in said.items() if count)
        raise RuntimeError(f"wrk met errors: {errors}, in {answered} answers")
    return LoadResult(answered, seconds, cpu)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
