"""Users, follows and tribbles for `bench tribbler`, written directly to the nodes' stores: RPC calls would
take longer than the benchmark itself."""

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence

import asyncpg

from nuncius.ring.ring import Ring, hash_of
from nuncius.ring.tribbler.model import (
    CHUNK,
    StoredTribble,
    chunk_key,
    encode_tribble,
    item,
    post_key,
    posts_key,
    subscriptions_key,
    user_key,
)
from nuncius.store.driver import Connection

ROWS = 50_000
START = 1_700_000_000_000_000_000
CELEBRITIES = 50
"""Number of users who have half of all followers."""

TEXT = "x" * 100


class Seeds:
    """Rows that are buffered for the stores of a ring."""

    def __init__(self, ring: Ring, stores: Mapping[str, str]) -> None:
        self._ring = ring
        self._stores = stores
        self._connections: dict[str, Connection] = {}
        self._values: dict[str, list[tuple[int, bytes, int, bytes]]] = {node: [] for node in stores}
        self._lists: dict[str, list[tuple[int, bytes]]] = {node: [] for node in stores}
        self._items: dict[str, list[tuple[int, bytes, int, bytes, bytes]]] = {node: [] for node in stores}

    async def __aenter__(self) -> "Seeds":
        for node, dsn in self._stores.items():
            self._connections[node] = await asyncpg.connect(dsn)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.flush(0)
        for connection in self._connections.values():
            await connection.execute("analyze")
            await connection.close()

    async def users(self, names: Iterable[str]) -> None:
        for name in names:
            await self.list(user_key(name), [name])

    async def follows(self, user: str, targets: Sequence[str]) -> None:
        await self.list(subscriptions_key(user), targets)

    async def posts(self, user: str, times: Sequence[int], *, contents: bool = True) -> None:
        """Add tribbles with these times. Without contents, only to the user's lists, which are all that the
        job reads."""
        if not times:
            return
        for n in range(0, len(times), CHUNK):
            await self.list(posts_key(user, n // CHUNK), [item(time) for time in times[n : n + CHUNK]])
        await self.value(chunk_key(user), str((len(times) - 1) // CHUNK).encode())
        for time in times if contents else ():
            await self.value(post_key(user, time), encode_tribble(StoredTribble(user, time, TEXT)))

    async def value(self, key: str, value: bytes) -> None:
        hashed = hash_of(key)
        self._values[self._ring.owner_of(hashed)].append((hashed, key.encode(), 1, value))
        await self.flush(ROWS)

    async def list(self, key: str, items: Sequence[str]) -> None:
        hashed, name = hash_of(key), key.encode()
        node = self._ring.owner_of(hashed)
        self._lists[node].append((hashed, name))
        self._items[node] += [
            (hashed, name, n, each.encode(), hashlib.sha256(each.encode()).digest())
            for n, each in enumerate(items, 1)
        ]
        await self.flush(ROWS)

    async def flush(self, least: int) -> None:
        """Store each buffer that has at least so many rows."""
        for table, rows in (
            ("key_values", self._values),
            ("key_lists", self._lists),
            ("key_items", self._items),
        ):
            for node, pile in rows.items():
                if len(pile) > least:
                    await self._connections[node].copy_records_to_table(
                        table, schema_name="nuncius", records=pile
                    )
                    pile.clear()

    async def empty(self) -> None:
        """Delete all data of the ring."""
        for connection in self._connections.values():
            await connection.execute("truncate nuncius.key_values, nuncius.key_lists, nuncius.key_items")


def graph(users: int, follows: int, seed: int) -> Iterator[tuple[str, list[str], list[int]]]:
    """Generate a social graph with celebrities: users, whom each follows, and the times of its posts."""
    choice = random.Random(seed)  # noqa: S311 - the same graph in every run
    names = [f"u{n}" for n in range(users)]
    each = follows // users
    for n, name in enumerate(names):
        stars = choice.sample(names[:CELEBRITIES], min(each // 2, CELEBRITIES))
        others = choice.sample(range(CELEBRITIES, users), each - len(stars))
        posts = 100 if n < CELEBRITIES else 1 + n % 4
        times = sorted(START + choice.randrange(10**15) for _ in range(posts))
        yield name, [*stars, *(names[m] for m in others)], times
