"""Find the newest tribbles of many users, with few calls to the store.

Ids contain the posting time, so a feed is chosen by ids alone and only its tribbles are read. First the
newest list of ids of every user is read. If all known ids of a user are among the newest, older ones may
belong there too: only for such users are older lists read, more each time.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from nuncius.ring.storage_ring import RingStorage
from nuncius.ring.tribbler.model import (
    CHUNK,
    LIMIT,
    Reference,
    StoredTribble,
    chunk_key,
    decode_tribble,
    post_key,
    posted_at,
    posts_key,
)


async def newest(storage: RingStorage, users: Sequence[str]) -> list[Reference]:
    """Return the newest tribbles of these users."""
    numbers = await storage.get_many([chunk_key(user) for user in users])
    # For each user, the oldest list not yet read is the one before this.
    unread = {user: int(n) + 1 for user, n in zip(users, numbers, strict=True) if n is not None}
    found: dict[str, list[Reference]] = {user: [] for user in unread}
    best: list[Reference] = []
    depth = -(-LIMIT // (CHUNK * max(1, len(unread)))) + (len(unread) < LIMIT // CHUNK)
    wanted: Iterable[str] = unread
    while places := [(user, n) for user in wanted for n in _below(unread[user], depth)]:
        lists = await storage.get_lists([posts_key(user, n) for user, n in places])
        for (user, n), items in zip(places, lists, strict=True):
            found[user].extend([(-posted_at(each), user) for each in items])
            unread[user] = n
        best = top(chain.from_iterable(found.values()))
        wanted = _perhaps_more(found, unread, best)
        depth *= 4
    return best


def top(references: Iterable[Reference]) -> list[Reference]:
    """Return the newest references, newest first, each once. They come in long runs from old to new, for
    which sorting all of them is fastest."""
    best: list[Reference] = []
    for reference in sorted(references):
        if not best or best[-1] != reference:
            best.append(reference)
            if len(best) == LIMIT:
                break
    return best


async def read(storage: RingStorage, references: Sequence[Reference]) -> list[StoredTribble]:
    """Read the tribbles of these references."""
    values = await storage.get_many([post_key(user, -age) for age, user in references])
    return [decode_tribble(value) for value in values if value is not None]


def _below(end: int, depth: int) -> range:
    return range(end - 1, max(end - depth, 0) - 1, -1)


def _perhaps_more(
    found: Mapping[str, Sequence[Reference]], unread: Mapping[str, int], best: Sequence[Reference]
) -> list[str]:
    """Return users with unread lists whose known ids are all among the best."""
    open_ended = [user for user, n in unread.items() if n > 0]
    if len(best) < LIMIT:
        return open_ended
    return [user for user in open_ended if not found[user] or max(found[user]) <= best[-1]]
