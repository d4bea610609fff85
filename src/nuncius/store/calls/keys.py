"""Keys of the ring in this store: many reads and many changes become one call each.

Keys, values and items are strings of any bytes for callers, and bytes in the store.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from nuncius.store.combiner.combiner import Call
from nuncius.store.driver import Connection
from nuncius.store.store import Store

TOPIC = "tribbles"
PUT, APPEND, REMOVE, POST, RAISE = range(5)
PER_CALL = 300  # bytes of memory that a call costs besides its content

WRITE = "select answers, topic from nuncius.change_keys($1, $2, $3, $4, $5, $6, $7, $8, $9)"
READ_VALUES = "select nuncius.read_values($1, $2)"
READ_LISTS = "select nuncius.read_lists($1, $2)"


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


class Mention(msgspec.Struct, frozen=True, gc=False):
    """The parts of a post besides its key and value."""

    list_key: str
    item: str
    group: str
    body: bytes


class WriteCall(Call):
    __slots__ = ("hashed", "item", "kind", "mention", "name")

    def __init__(
        self,
        done: Callable[[Any], None],
        kind: int,
        hashed: int,
        key: str,
        item: str,
        mention: Mention | None = None,
    ) -> None:
        size = PER_CALL + len(key) + len(item) + (len(mention.body) if mention else 0)
        super().__init__(done, None, hashed, 1, size, False)
        self.kind = kind
        self.hashed = hashed
        self.name = to_bytes(key)
        self.item = to_bytes(item)
        self.mention = mention


class ReadCall(Call):
    """A read of some values, or of some lists."""

    __slots__ = ("hashes", "lists", "names")

    def __init__(
        self, done: Callable[[Any], None], lists: bool, hashes: Sequence[int], keys: Sequence[str]
    ) -> None:
        super().__init__(done, None, None, len(keys), PER_CALL * len(keys), True)
        self.lists = lists
        self.hashes = hashes
        self.names = [to_bytes(key) for key in keys]


class KeyRow(msgspec.Struct, frozen=True, gc=False):
    """A key with its value and its list."""

    hashed: int
    key: str
    value: str | None
    items: list[str] | None


class Keys:
    """The procedures of `75_keys.sql` for a node."""

    def __init__(self, store: Store, published: Callable[[int], None] = lambda topic_id: None) -> None:
        """`published` is called when a topic has new entries, once for all posts of a batch."""
        self._store = store
        self._published = published
        self._writing = store.combiner("keys write", self._write)
        self._reading = store.combiner("keys read", read)

    async def drain(self) -> None:
        """Wait until all accepted calls are answered."""
        await self._writing.drain()
        await self._reading.drain()

    def write_soon(self, call: WriteCall) -> None:
        self._writing.submit(call)

    def read_soon(self, call: ReadCall) -> None:
        self._reading.submit(call)

    async def export(self, first: int, last: int, after: KeyRow | None, limit: int) -> list[KeyRow]:
        """Return keys of a range of hashes, after the last one seen."""
        rows = await self._store.query(
            "select * from nuncius.keys_of_range($1, $2, $3, $4, $5)",
            first,
            last,
            -1 if after is None else after.hashed,
            b"" if after is None else to_bytes(after.key),
            limit,
        )
        return [
            KeyRow(
                row["hash"],
                to_text(row["key"]),
                None if row["value"] is None else to_text(row["value"]),
                None if row["items"] is None else [to_text(item) for item in row["items"]],
            )
            for row in rows
        ]

    async def adopt(self, forget: Sequence[tuple[int, int]], rows: Sequence[KeyRow]) -> None:
        """Empty the ranges, then add the keys: all or nothing, and repeatable."""

        async def work(connection: Connection) -> None:
            async with connection.transaction():
                for first, last in forget:
                    await connection.execute("select nuncius.forget_range($1, $2)", first, last)
                await connection.executemany(
                    "select nuncius.adopt_key($1, $2, $3, $4)",
                    [
                        (
                            row.hashed,
                            to_bytes(row.key),
                            None if row.value is None else to_bytes(row.value),
                            None if row.items is None else [to_bytes(item) for item in row.items],
                        )
                        for row in rows
                    ],
                )

        await self._store.run(work, repeatable=True)

    async def note(self, notes: dict[str, Any], *, forget: Sequence[tuple[int, int]] = ()) -> None:
        """Store notes, and delete ranges of keys: all or nothing."""

        async def work(connection: Connection) -> None:
            async with connection.transaction():
                for first, last in forget:
                    await connection.execute("select nuncius.forget_range($1, $2)", first, last)
                texts = [msgspec.json.encode(note).decode() for note in notes.values()]
                await connection.execute("select nuncius.note_ring($1, $2)", list(notes), texts)

        await self._store.run(work, repeatable=True)

    async def notes(self) -> dict[str, Any]:
        rows = await self._store.query("select name, note::text from nuncius.ring_notes")
        return {row["name"]: msgspec.json.decode(row["note"]) for row in rows}

    async def _write(self, connection: Connection, calls: Sequence[WriteCall], _: bool) -> Sequence[int]:
        """Carry out a batch. Results: the answers of `change_keys`."""
        mentions = [call.mention for call in calls]
        has_posts = any(mentions)
        row = await connection.fetchrow(
            WRITE,
            [call.kind for call in calls],
            [call.hashed for call in calls],
            [call.name for call in calls],
            [call.item for call in calls],
            [to_bytes(each.list_key) if each else None for each in mentions] if has_posts else None,
            [to_bytes(each.item) if each else None for each in mentions] if has_posts else None,
            [each.group if each else None for each in mentions] if has_posts else None,
            [each.body if each else None for each in mentions] if has_posts else None,
            TOPIC,
        )
        assert row is not None
        answers: Sequence[int]
        answers, topic_id = row
        if topic_id is not None:
            self._published(topic_id)
        return answers


async def read(connection: Connection, calls: Sequence[ReadCall], _: bool) -> Sequence[Any]:
    """Carry out a batch. Results: a list with None, a string or a list of strings for each key."""
    found: dict[bool, Any] = {}
    for lists, sql in ((False, READ_VALUES), (True, READ_LISTS)):
        some = [call for call in calls if call.lists is lists]
        if some:
            rows = await connection.fetch(
                sql,
                [hashed for call in some for hashed in call.hashes],
                [name for call in some for name in call.names],
            )
            found[lists] = iter(rows)
    results: list[Any] = []
    for call in calls:
        mine = [row[0] for _, row in zip(call.names, found[call.lists], strict=False)]
        if call.lists:
            results.append([None if each is None else list(map(to_text, each)) for each in mine])
        else:
            results.append([None if each is None else to_text(each) for each in mine])
    return results
