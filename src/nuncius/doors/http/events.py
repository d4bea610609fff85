"""Server-sent events: a subscription's messages as a stream.

The id of an event is the stream's position after it, for every partition in which it has moved: `1:17,2:5`.
An id costs little, because within a piece of a partition only one number changes.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from nuncius.broker.errors import BrokerError, InvalidInput, StoreError
from nuncius.broker.model import Cursor, TailSlice
from nuncius.doors.http.answering import give_up
from nuncius.doors.http.exchange import Disconnected, Exchange
from nuncius.doors.http.v1.model import INT64, messages_of

CONTENT_TYPE = b"text/event-stream"
PIECE = 200  # messages at a time
ALIVE_SECONDS = 15.0  # without an event for this time, a comment keeps the stream alive

_encode = msgspec.json.Encoder().encode


def go_to(cursor: Cursor, last_event_id: str) -> None:
    """Move the cursor to the position after the event with this id. Partitions that it does not name stay at
    the subscription's position."""
    for word in last_event_id.split(","):
        partition, _, position = word.strip().partition(":")
        known = cursor.places.get(int(partition)) if partition.isdecimal() and len(partition) < 10 else None
        if known is None or not (position.isdecimal() and len(position) < 20 and int(position) <= INT64):
            raise InvalidInput("Last-Event-ID is not an id of this stream")
        cursor.rewind(int(partition), (known[0], int(position)))


async def stream(exchange: Exchange, cursor: Cursor, confirmed: dict[int, int]) -> None:
    """Send events until the client disconnects or the node stops. Ids contain the positions that differ from
    the confirmed ones."""
    await exchange.begin(200, CONTENT_TYPE, [(b"cache-control", b"no-store")])
    if exchange.method == "HEAD":
        await exchange.end()
        return
    try:
        await exchange.while_connected(_send(exchange, cursor, confirmed))
    except Disconnected:
        if exchange.closing.is_set():
            await exchange.end()
    except (BrokerError, StoreError):  # a client that reconnects gets the error
        await exchange.end()


async def _send(exchange: Exchange, cursor: Cursor, confirmed: dict[int, int]) -> None:
    await exchange.more(b": nuncius\n\n")
    while True:
        piece = None
        waiting = asyncio.ensure_future(cursor.next(PIECE, exchange.caller, exchange.replies))
        try:
            while piece is None:
                await asyncio.wait([waiting], timeout=ALIVE_SECONDS)
                if waiting.done():
                    piece = waiting.result()
                else:
                    await exchange.more(b": still here\n\n")
        finally:
            give_up(waiting)
        await exchange.more(b"".join(_events(piece, _others(cursor, confirmed, piece.partition))))


def _others(cursor: Cursor, confirmed: dict[int, int], partition: int) -> bytes:
    """Return the stream's positions in other partitions, if it has moved there."""
    moved = [
        b"%d:%d," % (each, position)
        for each, (_, position) in sorted(cursor.places.items())
        if each != partition and position != confirmed.get(each, 0)
    ]
    return b"".join(moved)


def _events(piece: TailSlice, others: bytes) -> Iterable[bytes]:
    for message in messages_of(piece.partition, piece.entries):
        yield b"id: %b%d:%d\ndata: %b\n\n" % (
            others,
            message.partition,
            message.offset + 1,
            _encode(message),
        )
