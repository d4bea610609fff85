"""Publishing as part of a transaction, beside puts and acknowledgements."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from nuncius.store.combiner import Detour
from nuncius.store.driver import Connection
from nuncius.store.publishing import PublishCall, publish


class Stale(Exception):
    """A topic has changed since the entries were placed."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """Entries that belong to a transaction."""

    calls: Sequence[PublishCall]
    place_again: Callable[[], Awaitable[None]]
    arrived: Callable[[Iterable[int]], None]

    async def carry_out(self, connection: Connection) -> None:
        """Raises Stale if the entries have to be placed again, for another try."""
        for result in await publish(connection, self.calls, True) if self.calls else ():
            if isinstance(result, Exception):
                raise result
            if isinstance(result, Detour):  # not "busy": who waits for locks gets them
                raise Stale

    def announce(self) -> None:
        self.arrived({call.topic_id for call in self.calls})
