"""Detect silent managers: they accept connections and requests but answer not even a health check.

A killed process is noticed at once, because its connections end. A process that was stopped, or whose machine
hangs, keeps them. So a manager that has sent nothing since a request is asked for `/livez`, which needs no
store. While it does not answer, new requests go to the other managers, and repeatable requests are repeated
there. Clients with other requests are told, a little later, that the outcome is unknown, so that they can
continue.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from nuncius.cluster.balancer.managers import Manager, Managers
from nuncius.cluster.balancer.upstream import Upstream

log = logging.getLogger(__name__)

WORDLESS_SECONDS = 0.25  # after a request was sent, before its manager gets a health check
ALIVE_SECONDS = 0.4  # for the answer to the health check
AGAIN_SECONDS = 0.2  # until the next health check
GIVE_UP_SECONDS = 3.0  # of silence, for requests that cannot be repeated
_ALIVE = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


class Silence:
    """Mark silent managers and withdraw the requests that wait for them."""

    def __init__(self, managers: Mapping[str, Managers], asked: Iterable[Upstream]) -> None:
        self._managers = managers
        self._asked = asked
        self.watched: dict[Manager, asyncio.Task[None]] = {}

    def close(self) -> None:
        for task in self.watched.values():
            task.cancel()

    def look(self) -> None:
        """Start to watch managers that have sent nothing since a request, if there are other managers."""
        loop = asyncio.get_running_loop()
        for upstream in self._asked:
            manager, since = upstream.manager, upstream.asked_at
            if manager in self.watched or upstream.has_begun or manager.heard_at > since:
                continue
            if loop.time() - since > WORDLESS_SECONDS and upstream.has_alternative:
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

    def _waiting(self, manager: Manager) -> list[Upstream]:
        return [each for each in self._asked if each.manager is manager and not each.has_begun]

    def _take_back(self, manager: Manager, seconds: float) -> None:
        for upstream in self._waiting(manager):
            if upstream.has_alternative and (upstream.is_repeatable or seconds > GIVE_UP_SECONDS):
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
