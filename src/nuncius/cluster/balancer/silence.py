"""Which managers are silent: they take requests and connections, and do not even say that they are alive.

A process that was killed is known at once, because its connections end. One that was stopped, or whose
machine hangs, keeps them. So a manager that has said nothing since a request was sent to it is asked for
`/livez`, which needs no store. While it does not answer, new requests go to the others, and what can be
repeated is repeated there. For the rest the client is told, a little later, that the outcome is unknown, so
that it may go on.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from nuncius.cluster.balancer.managers import Manager, Managers
from nuncius.cluster.balancer.upstream import Upstream

log = logging.getLogger(__name__)

WORDLESS_SECONDS = 0.25  # since a request was sent, before its manager is asked whether it is alive
ALIVE_SECONDS = 0.4  # for the answer to that
AGAIN_SECONDS = 0.2  # until it is asked again
GIVE_UP_SECONDS = 3.0  # of silence, for requests that cannot be repeated
_ALIVE = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


class Silence:
    """Mark the managers that are silent, and take back what waits for them."""

    def __init__(self, managers: Mapping[str, Managers], asked: Iterable[Upstream]) -> None:
        self._managers = managers
        self._asked = asked
        self.watched: dict[Manager, asyncio.Task[None]] = {}

    def close(self) -> None:
        for task in self.watched.values():
            task.cancel()

    def look(self) -> None:
        """Begin to watch managers that have said nothing since they were asked, where there are others."""
        loop = asyncio.get_running_loop()
        for upstream in self._asked:
            manager, since = upstream.manager, upstream.asked_at
            if manager in self.watched or upstream.has_begun or manager.heard_at > since:
                continue
            if loop.time() - since > WORDLESS_SECONDS and upstream.has_alternative:
                self.watched[manager] = loop.create_task(self._watch(manager))

    async def _watch(self, manager: Manager) -> None:
        """Ask a manager whether it is alive until it is, or until it is known to have ended and nothing waits
        for it."""
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
    """Whether a manager says in time that it is alive. One that cannot be reached is not."""
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
