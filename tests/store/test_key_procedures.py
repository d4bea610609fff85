"""Keys of the ring in PostgreSQL: what the procedures answer, also beside a transaction that is held."""

import asyncio
from collections.abc import Sequence

import pytest

from fix_connections import Connect
from nuncius.store.driver import Connection

PUT, APPEND, REMOVE = 0, 1, 2


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
