"""Handle BEGIN, COMMIT and ABORT: messages and acknowledgements of a connection's transactions.

Nothing is carried out before COMMIT; then everything is, in one transaction of PostgreSQL, or nothing. Open
transactions are kept in memory, so their size is limited.
"""

from collections.abc import Sequence
from typing import Any

from nuncius.broker import Broker, future
from nuncius.doors.stomp.destinations import Destination
from nuncius.doors.stomp.errors import StompRefusal
from nuncius.doors.stomp.frames.codec import Frame
from nuncius.doors.stomp.frames.headers import SentMessage, required
from nuncius.doors.stomp.outbox import StompOutbox, letter
from nuncius.doors.stomp.subscriptions.subscribing import AnySubscription
from nuncius.doors.wire import Wire

MAX_TRANSACTIONS = 100  # open at a time, per connection
MAX_STEPS = 10_000  # open at a time, per connection
MAX_BYTES = 16 << 20  # the same
STEP_COST = 500  # bytes of memory per step, besides its body and headers


class StompTransaction:
    """A transaction that has begun."""

    __slots__ = ("claims", "messages", "size", "steps")

    def __init__(self) -> None:
        self.messages: list[tuple[Destination, SentMessage]] = []
        self.claims: list[tuple[AnySubscription, Sequence[Any], str | None]] = []
        self.size = 0
        self.steps = 0


class StompTransactions:
    def __init__(self, broker: Broker, outbox: StompOutbox, wire: Wire) -> None:
        self._broker = broker
        self._outbox = outbox
        self._open: dict[str, StompTransaction] = {}
        self._caller = wire.caller
        self._footprint = wire.footprint
        self._size = 0
        self._steps = 0

    def begin(self, frame: Frame) -> None:
        name = required(frame, "transaction")
        if name in self._open:
            raise StompRefusal(f"there is a transaction {name[:100]!r} already")
        if len(self._open) >= MAX_TRANSACTIONS:
            raise StompRefusal(f"a connection has at most {MAX_TRANSACTIONS} transactions open")
        self._open[name] = StompTransaction()

    def send(self, name: str, to: Destination, message: SentMessage) -> None:
        transaction = self._find(name)
        self._add(transaction, 1, len(message.body) + len(message.headers or ""))
        transaction.messages.append((to, message))

    def acknowledge(self, name: str, by: AnySubscription, ack_id: str, reason: str | None) -> None:
        transaction = self._find(name)
        claimed = by.claim(ack_id, by_transaction=True)
        transaction.claims.append((by, claimed, reason))
        self._add(transaction, len(claimed), 0)

    def take(self, frame: Frame) -> StompTransaction:
        """Remove and return the transaction that a COMMIT names. The caller must commit or restore it."""
        return self._remove(required(frame, "transaction"))

    async def commit(self, transaction: StompTransaction) -> None:
        try:
            steps = self._broker.transaction(caller=self._caller)
            for to, message in transaction.messages:
                queue, publisher = await self._outbox.resolve(to, message)
                count = 0 if publisher is None else 1
                if queue is not None:
                    steps.put(queue.queue_id, letter(message), publisher=publisher, count=count)
                else:
                    steps.publish(
                        to.name,
                        message.body,
                        headers=message.headers,
                        key=message.key,
                        publisher=publisher,
                        count=count,
                    )
            for by, claimed, reason in transaction.claims:
                by.add_to(steps, claimed, reason)
            committed, done = future.new()
            steps.commit_soon(done)
            await committed
        except Exception:
            self.restore(transaction)
            raise
        for by, claimed, _ in transaction.claims:
            by.committed(claimed)

    def abort(self, frame: Frame) -> None:
        self.restore(self._remove(required(frame, "transaction")))

    def abort_all(self) -> None:
        for name in list(self._open):
            self.restore(self._remove(name))

    def restore(self, transaction: StompTransaction) -> None:
        """Restore the deliveries that the transaction acknowledged."""
        for by, claimed, _ in transaction.claims:
            by.restore(claimed)

    def _find(self, name: str) -> StompTransaction:
        transaction = self._open.get(name)
        if transaction is None:
            raise StompRefusal(f"there is no transaction {name[:100]!r}")
        return transaction

    def _add(self, transaction: StompTransaction, steps: int, size: int) -> None:
        size += STEP_COST * steps
        transaction.size += size
        transaction.steps += steps
        self._size += size
        self._steps += steps
        self._footprint.keep(size)
        if self._steps > MAX_STEPS or self._size > MAX_BYTES:
            raise StompRefusal(
                f"open transactions of a connection have at most {MAX_STEPS} steps and {MAX_BYTES} bytes"
            )

    def _remove(self, name: str) -> StompTransaction:
        transaction = self._find(name)
        del self._open[name]
        self._size -= transaction.size
        self._steps -= transaction.steps
        self._footprint.keep(-transaction.size)
        return transaction
