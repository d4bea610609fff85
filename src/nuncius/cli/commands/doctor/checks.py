"""The checks of this machine, the store and the node that `nuncius doctor` makes."""

import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import asyncpg

from nuncius import __version__
from nuncius.broker.observe.findings import Finding, fail, ok, warn
from nuncius.cli import output
from nuncius.cli.commands.doctor.examination import examine
from nuncius.cli.connection import is_up
from nuncius.cli.database import connected
from nuncius.client import AsyncClient, NunciusError
from nuncius.store import environment
from nuncius.store.address import shown
from nuncius.store.errors import ServerStartError, StoreError
from nuncius.store.server import embedded, pgbinaries
from nuncius.store.server.datadir import DataDirectory

OLDEST_PYTHON = (3, 11)
LITTLE_SPACE = 2 << 30
NO_SPACE = 256 << 20
ANSWER_SECONDS = 3.0


def python() -> Finding:
    version = f"{platform.python_implementation()} {platform.python_version()}"
    if tuple(map(int, platform.python_version_tuple()[:2])) < OLDEST_PYTHON:
        return fail("Python", version, "install 3.11 or newer")
    return ok("Python", version)


def variables() -> Iterator[Finding]:
    """Report the environment variables that are set, without passwords."""
    for name in environment.NAMES:
        if value := environment.value(name):
            yield ok("environment", f"{name}={shown(value)}")


def programs() -> Finding:
    try:
        found = pgbinaries.find()
    except ServerStartError as error:
        return fail("programs", str(error), "reinstall nuncius")
    return ok("programs", f"PostgreSQL {pgbinaries.MAJOR} in {found.root}")


def data_directory(directory: Path) -> Iterator[Finding]:
    check, other = "data directory", "choose another with --data-dir"
    if DataDirectory(directory).is_ours:
        yield ok(check, str(directory))
    elif not directory.exists():
        yield warn(check, f"{directory} does not exist yet", "nuncius up makes it")
    else:
        try:
            content = next((entry.name for entry in directory.iterdir()), None)
        except OSError as error:
            yield fail(check, f"{directory} cannot be read ({error.strerror})", other)
            return
        if content is not None:
            yield fail(check, f"{directory} is not ours, it contains {content}", other)
        else:
            yield warn(check, f"{directory} is empty", "nuncius up fills it")
    yield _space(directory)


def _space(directory: Path) -> Finding:
    place = next(p for p in (directory, *directory.parents) if p.exists())
    usage = shutil.disk_usage(place)
    detail = f"{output.size(usage.free)} free of {output.size(usage.total)}"
    if usage.free < NO_SPACE:
        return fail("disk", detail, "make room: PostgreSQL stops when the disk is full")
    if usage.free < LITTLE_SPACE:
        return warn("disk", detail, "make room soon, or shorten retention")
    return ok("disk", detail)


def embedded_store(directory: Path, findings: list[Finding]) -> str | None:
    server = embedded.running(directory)
    if server is None:
        findings.append(warn("server", "is not running", "nuncius up starts it"))
        return None
    findings.append(ok("server", f"runs as process {server.pid}"))
    return server.dsn


async def database(dsn: str) -> list[Finding]:
    found: list[Finding] = []
    try:
        async with connected(dsn) as connection:
            async for finding in examine(connection):
                found.append(finding)  # noqa: PERF401 - what was found before a failure counts
    except (StoreError, asyncpg.PostgresError, ValueError) as error:
        found.append(fail("database", str(error), "check that it runs, the address and the rights"))
    return found


async def node(url: str) -> Finding:
    client = AsyncClient(url, timeout=ANSWER_SECONDS)
    try:
        await client.open()
        seconds = await client.ping()
        facts = await client.status()
    except NunciusError as error:
        if await is_up(url):
            return warn(
                "node", f"{url} is up, but its store does not answer", "look at the checks of the store"
            )
        return warn("node", f"{url}: {error}", "nuncius up starts one")
    finally:
        await client.close()
    version = facts.get("version", __version__)
    detail = f"{url} answers within {seconds * 1000:.1f} ms, version {version}"
    if version != __version__:
        return warn("node", detail, f"this program is version {__version__}: upgrade the older one")
    return ok("node", detail)
