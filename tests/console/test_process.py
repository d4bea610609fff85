"""The console's process: started at the first look, shared by workers, gone with its node, guarded."""

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from cli.commands import NUNCIUS, node, nuncius
from nuncius.broker import Broker
from nuncius.console.guard import Guard, is_from_here
from nuncius.doors.http.door import HttpDoor
from nuncius.node.console_process import ConsoleProcess, console_command

SAYS_WHY = 'import sys; sys.stdin.readline(); print(\'{"error": "no such luck"}\'); sys.exit(1)'
DIES = "import sys; sys.stdin.readline(); sys.exit(3)"


@asynccontextmanager
async def kept(*command: str) -> AsyncIterator[str]:
    """The address of a console that this command is to start."""
    keeper = ConsoleProcess("postgresql://nowhere", command=command)
    port = keeper.open()
    try:
        yield f"http://127.0.0.1:{port}/console/"
    finally:
        await keeper.close()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ((sys.executable, "-c", SAYS_WHY), "no such luck"),
        ((sys.executable, "-c", DIES), "it died while it started"),
        (("/no/such/program",), "No such file"),
    ],
)
async def test_who_waits_for_a_console_learns_why_there_is_none(
    command: tuple[str, ...], reason: str
) -> None:
    """Each look tries again, and says again what went wrong."""
    async with kept(*command) as address, httpx.AsyncClient(trust_env=False, timeout=30) as http:
        for _ in range(2):
            response = await http.get(address)
            assert response.status_code == 503
            assert reason in response.text


async def test_a_keeper_that_was_never_opened_or_looked_at_closes() -> None:
    """Nobody has to look."""
    await ConsoleProcess("postgresql://nowhere").close()
    async with kept("/no/such/program"):
        pass


def test_a_checkout_starts_its_console_with_its_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script installs what the console needs at its first look; else it is this Python."""
    monkeypatch.setenv("NUNCIUS_SCRIPT", "/somewhere/nuncius")
    assert console_command() == ["/somewhere/nuncius", "console", "--on-leash"]
    monkeypatch.delenv("NUNCIUS_SCRIPT")
    assert console_command() == [sys.executable, "-m", "nuncius", "console", "--on-leash"]


async def test_a_door_without_a_console_behind_it_says_so(broker: Broker) -> None:
    """The node's log says why; the browser gets an answer, over HTTP and over WebSocket."""
    door = HttpDoor(broker, console_port=9)
    port = await door.open("127.0.0.1", 0)
    try:
        async with httpx.AsyncClient(trust_env=False) as http:
            response = await http.post(f"http://127.0.0.1:{port}/console/x?y=z", content=b"ignored")
            assert (response.status_code, "did not start" in response.text) == (503, True)
            response = await http.get(f"http://127.0.0.1:{port}/consoles")
            assert response.status_code == 404  # an unknown path
        with pytest.raises(InvalidStatus):
            await connect(f"ws://127.0.0.1:{port}/console/socket", proxy=None)
    finally:
        await door.close()


def consoles(pid: int) -> list[psutil.Process]:
    """The consoles among the descendants of a process."""
    found = psutil.Process(pid).children(recursive=True)
    return [each for each in found if "console" in each.cmdline()]


def consoles_port(pid: int) -> int:
    """Where the one console listens, behind its node."""
    [console] = consoles(pid)
    [port] = {each.laddr.port for each in console.net_connections() if each.status == psutil.CONN_LISTEN}
    return int(port)


def test_workers_share_a_console_that_ends_with_them(dsn: str) -> None:
    """Whichever worker is asked, there is one console, started at the first look and gone with the node. One
    that died is started again by the next look. Other sites get nothing from it."""
    with node("--store", dsn, "--http-port=0", "--workers=2") as started:
        assert consoles(started.process.pid) == []
        address = f"http://127.0.0.1:{started.ready['ports']['http']}/console"
        for path in ("", "/", "/queues", "/topics", "/store"):
            response = httpx.get(address + path, trust_env=False, timeout=60, follow_redirects=True)
            assert response.status_code == 200
            assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
        stranger = {"origin": "http://evil.example"}
        assert httpx.get(f"{address}/", headers=stranger, trust_env=False).status_code == 403
        borrowed = {
            "host": "evil.example",
            "origin": "http://evil.example",
            "x-forwarded-host": "evil.example",
        }
        for port in consoles_port(started.process.pid), started.ready["ports"]["http"]:
            page = f"http://127.0.0.1:{port}/console/"
            assert httpx.get(page, headers=borrowed, trust_env=False).status_code == 403
        proxied = {"x-forwarded-host": "mq.example"}
        moved = httpx.get(f"{address}/queues/", headers=proxied, trust_env=False)
        assert moved.headers["location"] == "http://mq.example/console/queues"
        assert httpx.get(f"{address}/nothing", trust_env=False).status_code == 404
        [killed] = consoles(started.process.pid)
        killed.kill()
        killed.wait(20)
        assert httpx.get(f"{address}/queues", trust_env=False, timeout=60).status_code == 200
        [console] = consoles(started.process.pid)
        assert started.stop()[0] == 0
        assert not console.is_running()


def test_a_console_by_hand(dsn: str) -> None:
    """`nuncius console` says where it is, shows the store's pages, and ends at a signal."""
    process = subprocess.Popen(
        [*NUNCIUS, "console", "--store", dsn, "--port=0", "--read-only"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().removeprefix("The console is at ").strip()
        response = httpx.get(f"{address}/queues", trust_env=False, timeout=60)
        assert (response.status_code, "read only" in response.text) == (200, True)
        port = address.split(":")[2].split("/")[0]
        refused = nuncius("console", "--store", dsn, "--port", port)
        assert f"port {port} on 127.0.0.1 is in use" in refused.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--store=x", "--data-dir=y"), "not both"),
        (("--port=off",), "a console without a port is none"),
        (("--store=postgresql://127.0.0.1:9/x", "--port=0"), "cannot connect to the store"),
    ],
)
def test_a_console_says_what_is_wrong(arguments: tuple[str, ...], said: str) -> None:
    """In one line."""
    done = nuncius("console", *arguments)
    assert done.returncode != 0
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("headers", "is_ours"),
    [
        ({}, True),
        ({b"host": b"a:1", b"origin": b"http://a:1"}, True),
        ({b"host": b"a:1", b"origin": b"http://b:1"}, False),
        ({b"host": b"127.0.0.1:2", b"x-forwarded-host": b"a:1", b"origin": b"https://a:1"}, True),
        ({b"host": b"a:1", b"origin": b"null"}, False),
        ({b"host": b"evil.example:1", b"origin": b"http://evil.example:1"}, False),
        ({b"host": b"evil.example:1", b"x-forwarded-host": b"evil.example:1"}, False),
    ],
)
def test_only_pages_of_the_console_may_act(headers: dict[bytes, bytes], is_ours: bool) -> None:
    """A page of another site that opens a connection through a visitor's browser is recognised."""
    asked = {"type": "websocket", "headers": list(headers.items()), "server": ("127.0.0.1", 1)}
    assert is_from_here(asked) is is_ours


async def test_a_stranger_s_websocket_is_closed() -> None:
    """Before the application hears of it."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def never(*arguments: object) -> None:
        raise AssertionError(arguments)

    await Guard(never, "/console")(
        {"type": "websocket", "path": "/console/x", "headers": [(b"origin", b"http://b"), (b"host", b"a")]},
        receive,
        send,
    )
    assert sent == [{"type": "websocket.close", "code": 1008}]
