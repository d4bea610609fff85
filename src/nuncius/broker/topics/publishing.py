"""Publishing as part of a transaction."""

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nuncius.broker.delivery.push.send_order import SendOrder
from nuncius.store.calls.publishing import PublishCall, publish
from nuncius.store.combiner.combiner import Detour
from nuncius.store.driver import Connection


class Stale(Exception):
    """A topic has changed since the entries were placed."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """Entries that belong to a transaction."""

    calls: Sequence[PublishCall]
    place_again: Callable[[], Awaitable[None]]
    order: SendOrder
    arrived: Callable[[Collection[int]], None]

    async def carry_out(self, connection: Connection) -> Sequence[Any]:
        """Store the entries and return their places, valid after the commit. Raise Stale if the entries have
        to be placed again, for another attempt."""
        results = await publish(connection, self.calls, True) if self.calls else ()
        for result in results:
            if isinstance(result, Exception):
                raise result
            if isinstance(result, Detour):  # not "busy": this call waits for its locks
                raise Stale
        return results

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Mark the topics' entries as under way, from before the commit until `announce`."""
        topic_ids = {call.topic_id for call in self.calls}
        self.order.begin(topic_ids)
        try:
            yield
        finally:
            self.order.end(topic_ids)

    def announce(self, placed: Sequence[Any]) -> None:
        self.order.note(self.calls, placed)
        self.arrived({call.topic_id for call in self.calls})
