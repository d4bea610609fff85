"""Putting and taking in one transaction.

A message for a waiting reader is put and taken with one commit: the reader's take travels in the batch of the
put that it was called for. So a batch has puts and takes; the puts are carried out first.
"""

from collections.abc import Sequence
from typing import Any

from nuncius.store.calls.putting import PUT, Parcel, PutCall, put
from nuncius.store.calls.taking import COLUMNS, TakeCall, Taker
from nuncius.store.driver import Connection

# The takes depend on an answer of the puts, so that PostgreSQL runs them after the puts.
EXCHANGE = "select put.*, taken.* from ({}) put, lateral ({} from nuncius.take_many{}) taken".format(  # noqa: S608  (of our own texts)
    PUT,
    COLUMNS,
    "($13, $14, $15, $16, $17, $18, $19::text::bigint[], $20 and put.codes is not null, $21)",
)
PUT_COLUMNS = 3

ExchangeCall = PutCall | TakeCall


def is_take(call: ExchangeCall) -> bool:
    """Return the sort key for the calls of a batch: puts first."""
    return type(call) is TakeCall


class PutsAndTakes:
    def __init__(self) -> None:
        self._taker = Taker()

    async def carry_out(
        self, connection: Connection, calls: Sequence[ExchangeCall], wait: bool
    ) -> Sequence[Any]:
        """Carry out a batch, in which puts come before takes. Results: those of `put` and `Taker.take`."""
        puts = [call for call in calls if isinstance(call, PutCall)]
        takes = [call for call in calls if isinstance(call, TakeCall)]
        if not takes:
            return await put(connection, puts, wait)
        if not puts:
            return await self._taker.take(connection, takes, wait)
        asking = self._taker.asking(connection, takes, wait)
        if not asking.arguments:
            return await put(connection, puts, wait) + asking.results(None)
        parcel = Parcel(puts)
        row = await connection.fetchrow(EXCHANGE, *parcel.arguments, wait, *asking.arguments)
        assert row is not None
        return parcel.results(*row[:PUT_COLUMNS]) + asking.results(row[PUT_COLUMNS:])
