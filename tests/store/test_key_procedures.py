"""Keys of the ring in PostgreSQL: what the procedures answer, also beside a transaction that is held."""

import asyncio
from collections.abc import Sequence

import asyncpg
import pytest

from fix_connections import Connect
from nuncius.store.driver import Connection
from racing import until

PUT, APPEND, REMOVE, POST, RAISE = range(5)


async def write(connection: Connection, *changes: tuple[int, bytes, bytes]) -> Sequence[int]:
    answers: list[int] = await connection.fetchval(
        "select nuncius.write_keys($1, $2, $3, $4, null, null, null, null, '')",
        [kind for kind, _, _ in changes],
        [5] * len(changes),
        [key for _, key, _ in changes],
        [item for _, _, item in changes],
    )
    return answers


async def test_changes_in_order(connection: Connection) -> None:
    """The changes of a batch are carried out one after the other, also those of the same key."""
    answers = await write(
        connection,
        (PUT, b"k", b"1"),
        (PUT, b"k", b"2"),
        (REMOVE, b"l", b"a"),
        (APPEND, b"l", b"a"),
        (APPEND, b"l", b"a"),
        (APPEND, b"l", b"b"),
        (REMOVE, b"l", b"a"),
        (REMOVE, b"l", b"a"),
    )
    assert answers == [0, 0, 1, 0, 4, 0, 0, 2]
    values = await connection.fetch("select nuncius.read_values('{5,5}', $1)", [b"k", b"none"])
    assert [row[0] for row in values] == [b"2", None]
    lists = await connection.fetch("select nuncius.read_lists('{5,5}', $1)", [b"none", b"l"])
    assert [row[0] for row in lists] == [None, [b"b"]]
    assert await connection.fetchval("select count(*) from nuncius.key_values") == 1


Post = tuple[bytes, bytes, bytes, bytes]  # key, value, list, item


async def post(connection: Connection, call: str, *posts: Post, kinds: Sequence[int] = ()) -> asyncpg.Record:
    """Change keys with the hash 5; a post's entry has the key "g" and the post's value as body."""
    row = await connection.fetchrow(
        f"select {call}($1, $2, $3, $4, $5, $6, $7, $8, 'posts')",
        kinds or [POST] * len(posts),
        [5] * len(posts),
        *([each[n] for each in posts] for n in range(4)),
        ["g"] * len(posts),
        [value for _, value, _, _ in posts],
    )
    assert row is not None
    return row


CHANGE = "answers, topic from nuncius.change_keys"


async def test_posts(connection: Connection) -> None:
    """Posts are stored in their order: value, item and entry. The answer is the length of the list after
    each. A post whose key exists changes nothing; one whose item exists leaves the list as it is."""
    first = await post(
        connection, CHANGE, (b"a", b"1", b"l", b"x"), (b"b", b"2", b"l", b"y"), (b"c", b"3", b"m", b"x")
    )
    assert first["answers"] == [1, 2, 1]
    again = await post(
        connection,
        CHANGE,
        (b"a", b"9", b"l", b"z"),
        (b"d", b"4", b"l", b"z"),
        (b"d", b"9", b"l", b"w"),
        (b"e", b"5", b"l", b"z"),
        (b"f", b"6", b"l", b"y"),
        (b"g", b"7", b"m", b"w"),
    )
    assert again["answers"] == [2, 3, 3, 3, 3, 2]
    assert first["topic"] == again["topic"] is not None
    keys = [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    values = await connection.fetch("select nuncius.read_values(array_fill(5, array[7]), $1)", keys)
    assert [row[0] for row in values] == [b"%d" % n for n in range(1, 8)]
    lists = await connection.fetch("select nuncius.read_lists('{5,5}', $1)", [b"l", b"m"])
    assert [row[0] for row in lists] == [[b"x", b"y", b"z"], [b"x", b"w"]]
    entries = await connection.fetch("select key, body from nuncius.entries order by entry_offset")
    assert [tuple(row) for row in entries] == [("g", b"%d" % n) for n in range(1, 8)]
    assert (await post(connection, CHANGE, (b"a", b"9", b"l", b"q")))["topic"] is None


async def test_posts_among_other_changes(connection: Connection) -> None:
    """Posts and other changes of one call see what those before them have changed."""
    row = await post(
        connection,
        CHANGE,
        (b"l", b"x", b"", b""),
        (b"a", b"1", b"l", b"x"),
        (b"b", b"2", b"l", b"y"),
        (b"l", b"y", b"", b""),
        (b"b", b"9", b"", b""),
        (b"b", b"10", b"", b""),
        (b"b", b"8", b"l", b"z"),
        (b"c", b"3", b"l", b"z"),
        kinds=[APPEND, POST, POST, REMOVE, PUT, RAISE, POST, POST],
    )
    assert row["answers"] == [0, 1, 2, 0, 0, 0, 1, 2]
    values = await connection.fetch("select nuncius.read_values('{5,5,5}', $1)", [b"a", b"b", b"c"])
    assert [each[0] for each in values] == [b"1", b"10", b"3"]
    entries = await connection.fetch("select body from nuncius.entries order by entry_offset")
    assert [each[0] for each in entries] == [b"1", b"2", b"3"]


async def test_posts_of_an_older_node(connection: Connection, other: Connection) -> None:
    """`write_keys`, which version 0.1 calls, answers like `change_keys`, and notifies the nodes itself."""
    heard: list[object] = []
    await other.add_listener("nuncius", lambda *news: heard.append(news[3]))
    row = await post(connection, "nuncius.write_keys", (b"a", b"1", b"l", b"x"))
    assert row[0] == [1]
    topic = await connection.fetchval("select topic_id from nuncius.topics")
    await until(lambda: _has(heard, f"t{topic}"))


async def _has(heard: list[object], word: str) -> bool:
    return word in heard


async def test_two_writers(connection: Connection, other: Connection) -> None:
    """Two sessions that append the same items in another order each do not get in each other's way."""
    items = [b"%d" % n for n in range(200)]
    one, two = await asyncio.gather(
        write(connection, *((APPEND, b"l", item) for item in items)),
        write(other, *((APPEND, b"l", item) for item in reversed(items))),
    )
    assert sorted([*one, *two]) == [0] * 200 + [4] * 200


async def test_moving(connection: Connection) -> None:
    """What one node exports another takes in as it was; what is forgotten is gone, and only that."""
    await write(connection, (PUT, b"k", b"v"), (APPEND, b"k", b"b"), (APPEND, b"k", b"a"), (PUT, b"m", b""))
    page = "select * from nuncius.keys_of_range($1, $2, $3, $4, $5)"
    first = await connection.fetch(page, 0, 5, -1, b"", 1)
    second = await connection.fetch(page, 0, 5, 5, b"k", 10)
    assert [tuple(row) for row in (*first, *second)] == [(5, b"k", b"v", [b"b", b"a"]), (5, b"m", b"", None)]
    assert await connection.fetch(page, 6, 100, -1, b"", 10) == []
    for _ in range(2):
        await connection.execute("select nuncius.adopt_key(7, $1, $2, $3)", b"k", b"v", [b"b", b"a"])
        await connection.execute("select nuncius.adopt_key(7, $1, null, $2)", b"empty", [])
    await connection.execute("select nuncius.forget_range(0, 6)")
    left = [tuple(row) for row in await connection.fetch(page, 0, 100, -1, b"", 10)]
    assert left == [(7, b"empty", None, []), (7, b"k", b"v", [b"b", b"a"])]


@pytest.mark.parametrize("kind", ["values", "items"])
async def test_a_held_transaction(connection: Connection, connect: Connect, kind: str) -> None:
    """While somebody's transaction keeps vacuum away, looking a key up costs what it cost before, however
    often the key was changed."""
    await write(connection, (PUT, b"k", b"0"), (APPEND, b"k", b"0"))
    holder = await connect()
    async with holder.transaction(isolation="repeatable_read"):
        await holder.fetch("select from nuncius.key_values")
        for n in range(20):
            change = (PUT, b"k") if kind == "values" else (APPEND, b"l")
            await write(connection, *((*change, b"%d" % (200 * n + m)) for m in range(200)))
        order = "version" if kind == "values" else "position"
        key = "\\x6b" if kind == "values" else "\\x6c"
        await connection.execute("set enable_seqscan = off; set enable_bitmapscan = off")
        plan = await connection.fetch(
            f"explain (analyze, buffers, summary off, timing off) select {order} from nuncius.key_{kind}"
            f" where hash = 5 and key = '{key}' order by {order} desc limit 1"
        )
    hits = [line[0] for line in plan if "Buffers: shared" in line[0]]
    assert int(hits[0].split("hit=")[1].split()[0]) < 15
