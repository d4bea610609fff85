"""Open requests of a ZeroMQ client.

The protocol has no request ids: a client that sends several requests without waiting matches answers by their
order. So requests with the same envelope form a line. Consecutive gets run together, and so do puts, because
the broker keeps their order; any other request, and a change from one kind to the other, waits until the
requests before it are answered. Clients behind one proxy have different envelopes, and do not wait for each
other.
"""

import asyncio

from nuncius.broker.model import IdRequest
from nuncius.doors.replies import Reply, RequestLine


class Asked(Reply, kw_only=True):
    """An open request; its `request` is None if it is malformed."""

    number: int
    """Its number among the connection's requests."""
    line: "RequestLine[Asked]"
    envelope: tuple[bytes, ...]
    as_text: bool
    looking: IdRequest | None = None
    got: asyncio.Future[None] | None = None
    """Awaited until the request is answered."""
