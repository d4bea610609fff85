"""Putting and taking in one transaction.

A message that somebody waits for is put and taken with one commit: the reader's call travels with the put for
which it was called. So a batch has puts and takes; the puts are carried out first.
"""

from collections.abc import Sequence
from typing import Any

from nuncius.store.calls.putting import PUT, Parcel, PutCall, put
from nuncius.store.calls.taking import COLUMNS, TakeCall, Taker
from nuncius.store.driver import Connection

# What the takes are given depends on what the puts have answered: so they come after them.
EXCHANGE = "select put.*, taken.* from ({}) put, lateral ({} from nuncius.take_many{}) taken".format(  # noqa: S608  (of our own texts)
    PUT,
    COLUMNS,
    "($13, $14, $15, $16, $17, $18, $19::text::bigint[], $20 and put.codes is not null, $21)",
)
PUT_COLUMNS = 3

ExchangeCall = PutCall | TakeCall


def is_take(call: ExchangeCall) -> bool:
    """By which the calls of a batch are sorted."""
    return type(call) is TakeCall


class Exchange:
    def __init__(self) -> None:
        self._taker = Taker()

    async def carry_out(
        self, connection: Connection, calls: Sequence[ExchangeCall], wait: bool
    ) -> Sequence[Any]:
        """Carries out a batch, in which puts come before takes. Results: those of `put` and `Taker.take`."""
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
