"""Detect silent managers: they accept connections and requests but answer not even a health check.

A killed process is noticed at once, because its connections end. A process that was stopped, or whose machine
hangs, keeps them. So a manager that has sent nothing since a request is asked for `/livez`, which needs no
store. While it does not answer, new requests go to the other managers, and repeatable requests are repeated
there. Clients with other requests are told, a little later, that the outcome is unknown, so that they can
continue.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nuncius.cluster.balancer.managers import Manager, Managers
from nuncius.cluster.reverse_proxy.upstream import Upstream

if TYPE_CHECKING:
    from nuncius.cluster.balancer.client import BalancerClient

log = logging.getLogger(__name__)

WORDLESS_SECONDS = 0.25  # after a request was sent, before its manager gets a health check
ALIVE_SECONDS = 0.4  # for the answer to the health check
AGAIN_SECONDS = 0.2  # until the next health check
GIVE_UP_SECONDS = 3.0  # of silence, for requests that cannot be repeated
_ALIVE = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


class Silence:
    """Mark silent managers and withdraw the requests that wait for them."""

    def __init__(self, managers: Mapping[str, Managers], asked: Mapping[Upstream, "BalancerClient"]) -> None:
        self._managers = managers
        self._asked = asked
        self.watched: dict[Manager, asyncio.Task[None]] = {}

    def close(self) -> None:
        for task in self.watched.values():
            task.cancel()

    def look(self) -> None:
        """Start to watch managers that have sent nothing since a request, if there are other managers."""
        loop = asyncio.get_running_loop()
        for upstream, client in self._asked.items():
            manager, since = client.request.tried[-1], upstream.asked_at
            if manager in self.watched or upstream.has_begun or manager.heard_at > since:
                continue
            if loop.time() - since > WORDLESS_SECONDS and client.has_alternative:
                self.watched[manager] = loop.create_task(self._watch(manager))

    async def _watch(self, manager: Manager) -> None:
        """Check a manager until it answers, or until it has left the cluster and no request waits for it."""
        loop = asyncio.get_running_loop()
        try:
            while not await is_alive(manager):
                if manager.silent_since is None:
                    manager.silent_since = loop.time() - ALIVE_SECONDS
                    log.warning("a manager does not answer", extra={"manager": str(manager)})
                self._take_back(manager, loop.time() - manager.silent_since)
                if not (any(manager in each for each in self._managers.values()) or self._waiting(manager)):
                    return
                await asyncio.sleep(AGAIN_SECONDS)
            manager.heard_at = loop.time()
            manager.silent_since = None
        finally:
            del self.watched[manager]

    def _waiting(self, manager: Manager) -> "list[tuple[Upstream, BalancerClient]]":
        return [each for each in self._asked.items() if each[0].backend is manager and not each[0].has_begun]

    def _take_back(self, manager: Manager, seconds: float) -> None:
        for upstream, client in self._waiting(manager):
            if client.has_alternative and (client.request.repeatable or seconds > GIVE_UP_SECONDS):
                upstream.give_up("does not answer")


async def is_alive(manager: Manager) -> bool:
    """Return True if a manager answers a health check in time. An unreachable manager does not."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(ALIVE_SECONDS):
            reader, writer = await asyncio.open_connection(manager.host, manager.port)
            writer.write(_ALIVE)
            return bool(await reader.read(1))
    except (OSError, TimeoutError):
        return False
    finally:
        if writer is not None:
            writer.transport.abort()
