"""Recent posts of this node's users, for other nodes and for this one."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nuncius.ring.tribbler.model import TOPIC, NoTribble, StoredTribble, decode_tribble
from nuncius.ring.tribbler.recent import PORTION, Posts
from nuncius.store.queries import procedure, query

NO_TRIBBLE = StoredTribble("", 0, "")
"""A placeholder for an entry that is not a tribble: any client can publish to the topic."""
Query = Callable[..., Awaitable[Sequence[Any]]]
"""Returns the rows of a statement with its arguments."""
SINCE = query("ring", "bodies")


class LocalPosts:
    def __init__(self, query: Query) -> None:
        self._query = query

    async def recent(self, offsets: list[int] | None) -> Posts:
        """Return the posts from these offsets on, one offset per partition. With None, return only the
        topic's name."""
        if offsets is None:
            ((name,),) = await self._query(procedure("topic_identity", 1), TOPIC)
            return Posts(name, [], [], [], [], False)
        rows = await self._query(SINCE, TOPIC, offsets, PORTION)
        parts = [(start, bodies) for _, start, bodies in rows if start is not None]
        tribbles = [_said(body) for _, bodies in parts for body in bodies]
        return Posts(
            rows[0][0],
            [start for start, _ in parts],
            [len(bodies) for _, bodies in parts],
            [tribble.user for tribble in tribbles],
            [tribble.posted for tribble in tribbles],
            any(len(bodies) == PORTION for _, bodies in parts),
        )


def _said(body: bytes) -> StoredTribble:
    try:
        return decode_tribble(body)
    except NoTribble:
        return NO_TRIBBLE
