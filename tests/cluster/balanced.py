"""A balancer in front of a write manager and two read managers that do what a test wants."""

import datetime
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cluster.http_caller import Caller
from cluster.scripted_manager import ScriptedManager, managers
from nuncius.cluster.balancer.balancer import Balancer
from nuncius.cluster.members import ClusterMember

NOW = datetime.datetime.now(datetime.UTC)


def member(role: str, port: int, *, alive: bool = True) -> ClusterMember:
    return ClusterMember(port, "127.0.0.1", port, 1, (role,), None, 1, False, NOW, NOW, alive, 0)


class World:
    def __init__(self, balancer: Balancer, port: int, made: list[ScriptedManager]) -> None:
        self.balancer = balancer
        self.port = port
        self.writer, self.first, self.second = made
        self.caller = Caller(port)

    async def get(self, path: str = "/size", **options: Any) -> tuple[int, bytes]:
        return await self.ask("GET", path, **options)

    async def ask(self, method: str, path: str, body: bytes = b"", headers: str = "") -> tuple[int, bytes]:
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {len(body)}\r\n\r\n"
        return await self.caller.raw(head.encode() + body)

    async def failure(self, method: str = "GET", path: str = "/size", **options: Any) -> str:
        status, body = await self.ask(method, path, **options)
        fields = json.loads(body)
        assert (status, fields["status"]) == (400, "failure")
        return str(fields["message"])


@asynccontextmanager
async def balanced() -> AsyncIterator[World]:
    async with managers("writer", "first", "second") as made:
        balancer = Balancer()
        port = await balancer.open("127.0.0.1", 0)
        roles = ("writer", "reader", "reader")
        balancer.learn([member(role, each.port) for role, each in zip(roles, made, strict=True)])
        world = World(balancer, port, made)
        yield world
        await world.caller.close()
        await balancer.close()
