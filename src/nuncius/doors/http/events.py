"""Server-sent events: a subscription's messages as a stream.

The id of an event says where the stream stands behind it, for every partition that it has moved in:
`1:17,2:5`. An id costs little, because within a piece of a partition only one number changes.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from nuncius.broker.errors import BrokerError, InvalidInput, StoreError
from nuncius.broker.model import Reader, Slice
from nuncius.doors.http.answering import give_up
from nuncius.doors.http.exchange import Disconnected, Exchange
from nuncius.doors.http.v1.model import INT64, messages_of

CONTENT_TYPE = b"text/event-stream"
PIECE = 200  # messages at a time
ALIVE_SECONDS = 15.0  # after so long without an event a comment says that there is somebody

_encode = msgspec.json.Encoder().encode


def go_to(reader: Reader, last_event_id: str) -> None:
    """Puts the reader where an event with this id left off. Partitions that it does not name are where the
    subscription is."""
    for word in last_event_id.split(","):
        partition, _, position = word.strip().partition(":")
        known = reader.places.get(int(partition)) if partition.isdecimal() and len(partition) < 10 else None
        if known is None or not (position.isdecimal() and len(position) < 20 and int(position) <= INT64):
            raise InvalidInput("Last-Event-ID is not an id of this stream")
        reader.places[int(partition)] = (known[0], int(position))


async def stream(exchange: Exchange, reader: Reader, confirmed: dict[int, int]) -> None:
    """Sends events until the client goes or the door closes. Ids say what differs from what is confirmed."""
    await exchange.begin(200, CONTENT_TYPE, [(b"cache-control", b"no-store")])
    if exchange.method == "HEAD":
        await exchange.end()
        return
    try:
        await exchange.while_connected(_send(exchange, reader, confirmed))
    except Disconnected:
        if exchange.closing.is_set():
            await exchange.end()
    except (BrokerError, StoreError):  # who comes back is told what it is
        await exchange.end()


async def _send(exchange: Exchange, reader: Reader, confirmed: dict[int, int]) -> None:
    await exchange.more(b": nuncius\n\n")
    while True:
        piece = None
        waiting = asyncio.ensure_future(reader.next(PIECE, gate=exchange.replies))
        try:
            while piece is None:
                await asyncio.wait([waiting], timeout=ALIVE_SECONDS)
                if waiting.done():
                    piece = waiting.result()
                else:
                    await exchange.more(b": still here\n\n")
        finally:
            give_up(waiting)
        await exchange.more(b"".join(_events(piece, _others(reader, confirmed, piece.partition))))


def _others(reader: Reader, confirmed: dict[int, int], partition: int) -> bytes:
    """Where the stream stands in other partitions, as far as it has moved there."""
    moved = [
        b"%d:%d," % (each, position)
        for each, (_, position) in sorted(reader.places.items())
        if each != partition and position != confirmed.get(each, 0)
    ]
    return b"".join(moved)


def _events(piece: Slice, others: bytes) -> Iterable[bytes]:
    for message in messages_of(piece.partition, piece.entries):
        yield b"id: %b%d:%d\ndata: %b\n\n" % (
            others,
            message.partition,
            message.offset + 1,
            _encode(message),
        )
