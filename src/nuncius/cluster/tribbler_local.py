"""What the users of this node have posted lately, for other nodes and for this one."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nuncius.cluster.tribbler_model import TOPIC, NoTribble, Tribble, decode_tribble
from nuncius.cluster.tribbler_recent import PORTION, Posts

NOBODY = Tribble("", 0, "")
"""In place of an entry that is no tribble: every door can publish to the topic."""
Query = Callable[..., Awaitable[Sequence[Any]]]
"""Rows of a statement with its arguments."""


class LocalPosts:
    def __init__(self, query: Query) -> None:
        self._query = query
        self._store: str | None = None

    async def recent(self, offsets: list[int] | None) -> Posts:
        """The posts from these offsets on, one a partition; None: only the name of this store."""
        if self._store is None:
            self._store = str((await self._query("select nuncius.store_identity()"))[0][0])
        if offsets is None:
            return Posts(self._store, [], [], [], [], False)
        rows = await self._query("select * from nuncius.bodies_since($1, $2, $3)", TOPIC, offsets, PORTION)
        tribbles = [_said(body) for _, bodies in rows for body in bodies]
        return Posts(
            self._store,
            [start for start, _ in rows],
            [len(bodies) for _, bodies in rows],
            [tribble.user for tribble in tribbles],
            [tribble.posted for tribble in tribbles],
            any(len(bodies) == PORTION for _, bodies in rows),
        )


def _said(body: bytes) -> Tribble:
    try:
        return decode_tribble(body)
    except NoTribble:
        return NOBODY
