"""Cache of names that a node has looked up.

A message that names an unknown topic has to wait for the look-up. Later messages from the same sender to the
same topic must not overtake it: a publisher's counts would arrive out of order. So all callers that ask for
a name that is being looked up wait in line, in order of asking.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from nuncius.broker import future
from nuncius.broker.background.tasks import BackgroundWork

log = logging.getLogger(__name__)

V = TypeVar("V")


class Names(Generic[V]):
    def __init__(self, look_up: Callable[[str], Awaitable[V]], most: int = 100_000) -> None:
        self._look_up = look_up
        self._most = most
        self._known: OrderedDict[str, V] = OrderedDict()  # without the names that are being looked up
        self.known: Callable[[str], V | None] = self._known.get
        """Return the value of the name, or None if it has to be looked up."""
        self._in_line: dict[str, list[Callable[[V | Exception], None]]] = {}
        self._background = BackgroundWork()
        self._outdated: set[str] = set()  # names that were forgotten while they were being looked up
        self._forgotten = 0  # how often names were forgotten

    def when_known(self, name: str, then: Callable[[V | Exception], None]) -> None:
        """Call `then` with the value of the name, at once if it is known, in order of asking."""
        value = self.known(name)
        if value is not None:
            then(value)
            return
        line = self._in_line.get(name)
        if line is not None:
            line.append(then)
            return
        self._in_line[name] = [then]
        self._background.start(self._resolve(name))

    async def find(self, name: str) -> V:
        value = self.known(name)
        if value is not None:
            return value
        found, then = future.new()
        self.when_known(name, then)
        return await found  # type: ignore[no-any-return]

    def learn(self, name: str, value: V) -> None:
        """Note a value. A name that is being looked up gets the value that the look-up finds: its later
        callers wait in line, too."""
        if name in self._in_line:
            return
        if len(self._known) >= self._most:
            self._known.popitem(last=False)
        self._known[name] = value

    def forget(self, name: str) -> None:
        """Forget a name whose value has changed. Callers in line wait for a look-up that begins later."""
        self._known.pop(name, None)
        if name in self._in_line:
            self._outdated.add(name)
        self._forgotten += 1

    def forget_all(self) -> None:
        self._known.clear()
        self._forgotten += 1

    async def _resolve(self, name: str) -> None:
        value: V | Exception
        forgotten = self._forgotten
        try:
            value = await self._look_up(name)
            while name in self._outdated:
                self._outdated.discard(name)
                forgotten = self._forgotten
                value = await self._look_up(name)
        except Exception as error:
            value = error
            self._outdated.discard(name)
        in_line = self._in_line.pop(name)
        if not isinstance(value, Exception) and forgotten == self._forgotten:  # else it may be outdated
            self.learn(name, value)
        for then in in_line:
            try:
                then(value)
            except Exception:
                log.exception("a caller failed on the name it asked for")
