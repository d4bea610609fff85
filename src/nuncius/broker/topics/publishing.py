"""Publishing as part of a transaction, beside puts and acknowledgements."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nuncius.broker.delivery.send_order import SendOrder
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
    arrived: Callable[[Iterable[int]], None]

    async def carry_out(self, connection: Connection) -> Sequence[Any]:
        """Answers where the entries are once the transaction is committed. Raises Stale if they have to be
        placed again, for another try."""
        results = await publish(connection, self.calls, True) if self.calls else ()
        for result in results:
            if isinstance(result, Exception):
                raise result
            if isinstance(result, Detour):  # not "busy": who waits for locks gets them
                raise Stale
        return results

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """From before the transaction is committed until `announce`."""
        topic_ids = {call.topic_id for call in self.calls}
        self.order.begin(topic_ids)
        try:
            yield
        finally:
            self.order.end(topic_ids)

    def announce(self, placed: Sequence[Any]) -> None:
        self.order.note(self.calls, placed)
        self.arrived({call.topic_id for call in self.calls})
