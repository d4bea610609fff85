"""The balancer: a small reverse proxy in front of write and read managers.

Writes go to the write manager, reads to the read managers in turn. A manager that does not answer is skipped
for a moment, and repeatable requests go to the next one. Every request is answered: with the manager's answer
or with an error that names the manager that failed.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import asyncpg

from nuncius.broker.background.deadlines import DeadlineWatch
from nuncius.broker.limits import Limits
from nuncius.broker.model import Pressure
from nuncius.cluster.balancer.client import BalancerClient
from nuncius.cluster.balancer.managers import READS, WRITES, Managers
from nuncius.cluster.balancer.silence import Silence
from nuncius.cluster.dialects import QueueDialect
from nuncius.cluster.members import ClusterMember
from nuncius.cluster.reverse_proxy.upstream import Upstream
from nuncius.store.errors import StoreError

ANSWER_SECONDS = 15.0
MODERN_ANSWER_SECONDS = 90.0  # /v1 can be asked to wait for a message
SWEEP_SECONDS = 0.2
LOOK_SECONDS = 2.0
CLOSE_SECONDS = 10.0
BACKLOG = 1024
MAX_CONNECTIONS = 10_000


class Balancer:
    def __init__(
        self,
        max_connections: int = MAX_CONNECTIONS,
        dialect: QueueDialect = QueueDialect.AUTO,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.pressure = Pressure(self.limits.max_memory)
        self.sentences = dialect.is_in_sentences
        self.max_connections = max_connections
        self.managers = {kind: Managers(kind) for kind in (WRITES, READS)}
        self.clients: set[BalancerClient] = set()
        self.asked: dict[Upstream, BalancerClient] = {}
        """Connections to managers with a request in flight, and its client."""
        self.look: Callable[[], Awaitable[None]] | None = None
        """Calls `learn` with the current members."""
        self.silence = Silence(self.managers, self.asked)
        self._watch = DeadlineWatch(self.limits, lambda: self.clients)
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    def learn(self, members: Sequence[ClusterMember]) -> None:
        """Update the managers from the list of members."""
        for kind, role in ((WRITES, "writer"), (READS, "reader")):
            self.managers[kind].learn(
                (member.host, member.port) for member in members if role in member.roles and member.is_alive
            )

    async def look_now(self) -> None:
        if self.look is not None:
            with contextlib.suppress(StoreError, asyncpg.PostgresError, TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self.look()

    async def open(self, host: str, port: int) -> int:
        self._loop = asyncio.get_running_loop()
        self._server = await self._loop.create_server(
            lambda: BalancerClient(self), host, port, backlog=BACKLOG
        )
        self._sweep()
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Accept no new connections. Open requests are answered first."""
        if self._server is None:
            return
        self._server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while busy := [client for client in self.clients if not client.idle.is_set()]:
                    await busy[0].idle.wait()
        for client in list(self.clients):
            client.close()
        self._watch.end()
        self.silence.close()
        for managers in self.managers.values():
            managers.close()
        if self._sweeper is not None:
            self._sweeper.cancel()

    def welcome(self, client: BalancerClient) -> None:
        self.clients.add(client)
        self._watch.begin()

    def now(self) -> float:
        return self._loop.time()

    def deadline(self, *, modern: bool) -> float:
        return self._loop.time() + (MODERN_ANSWER_SECONDS if modern else ANSWER_SECONDS)

    def _sweep(self) -> None:
        now = self._loop.time()
        for upstream in [each for each in self.asked if not each.has_begun and each.deadline < now]:
            upstream.give_up("has not answered in time")
        self.silence.look()
        for managers in self.managers.values():
            managers.drop_idle()
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)
