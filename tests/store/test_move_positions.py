"""The contract of moving a subscription's position, whichever procedure moves it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from nuncius.store.driver import Connection
from racing import until_waiting
from store.publishing_sql import Send, publish_many, topic

MOVED, NOT_FOUND, BUSY, MOVED_BEFORE, KEY_KNOWN, NOT_OWNER, NOT_PUBLISHED = -1, -2, -3, -4, -5, -6, -7
CONSUMER_LOCK, GROUP_LOCK = 78021, 78022


async def subscribe(connection: Connection, subscriber: str = "sue", name: str = "news") -> int:
    found: int = await connection.fetchval(
        "select subscription_id from nuncius.subscribe($1, $2, 'earliest')", name, subscriber
    )
    return found


async def partitions(connection: Connection, name: str = "news") -> list[int]:
    """The ids of a topic's partitions, in order."""
    rows = await connection.fetch(
        "select partition_id from nuncius.partitions join nuncius.topics using (topic_id)"
        " where topic_name = $1 order by partition",
        name,
    )
    return [row[0] for row in rows]


async def places(connection: Connection, subscription: int) -> list[int]:
    """The next offset to read, partition by partition."""
    rows = await connection.fetch("select position from nuncius.positions_of($1)", [subscription])
    return [row[0] for row in rows]


async def stored(connection: Connection, subscription: int) -> list[int]:
    """Every stored position of a subscription, superseded ones too."""
    rows = await connection.fetch(
        "select position from nuncius.positions where subscription_id = $1 order by 1", subscription
    )
    return [row[0] for row in rows]


async def join(connection: Connection, subscriber: str = "sue") -> tuple[int, int]:
    """A new member of a subscription's group, and the group's generation."""
    member = await connection.fetchval("select nuncius.join_group('news', $1, 'm', 0, 60)", subscriber)
    return member, await connection.fetchval("select max(generation) from nuncius.groups")


# The ways forward: each moves a subscription of the topic "news" to places of its first partition, in turn.


async def by_confirm_many(connection: Connection, to: Sequence[int], subscriber: str = "sue") -> None:
    subscription, (first, *_) = await subscribe(connection, subscriber), await partitions(connection)
    await connection.fetchval(
        "select nuncius.confirm_many($1, $2, $3)", [subscription] * len(to), [first] * len(to), to
    )


async def by_acknowledge_many(connection: Connection, to: Sequence[int], subscriber: str = "sue") -> None:
    subscription, (first, *_) = await subscribe(connection, subscriber), await partitions(connection)
    await connection.fetchval(
        "select nuncius.acknowledge_many($1, $2, $3, '{}', '{}', '{}', '{}', '{}', '{}', '{}', 1, 1)",
        [subscription] * len(to),
        [first] * len(to),
        to,
    )


async def by_name(connection: Connection, to: Sequence[int], subscriber: str = "sue") -> None:
    for position in to:
        await connection.fetchval("select nuncius.confirm('news', $1, $2)", subscriber, position)


async def by_member(connection: Connection, to: Sequence[int], subscriber: str = "sue") -> None:
    member, generation = await join(connection, subscriber)
    await connection.fetchrow(
        "select * from nuncius.confirm_as_member($1, $2, $3, $4)", member, generation, [1] * len(to), to
    )
    await connection.execute("select nuncius.leave_group($1)", [member])


async def by_id(connection: Connection, to: Sequence[int], subscriber: str = "sue") -> None:
    await connection.fetchrow(
        "select * from nuncius.get_many($1, $2, $3, 1000000)",
        ["news"] * len(to),
        [subscriber] * len(to),
        to,
    )


Way = Callable[[Connection, Sequence[int]], Awaitable[None]]
BY_OFFSET = [by_confirm_many, by_acknowledge_many, by_name, by_member]
every_way = pytest.mark.parametrize("move", [*BY_OFFSET, by_id])


async def advance(
    connection: Connection,
    *moves: tuple[int, int, int, int],
    movers: Sequence[int] = (),
    keys: Sequence[str] = (),
    wait: bool = True,
) -> list[int]:
    """Moves each (subscription, partition, from, to); with keys, one for each move."""
    answers: list[int] = await connection.fetchval(
        "select nuncius.advance_many($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        [move[0] for move in moves],
        [move[1] for move in moves],
        [move[2] for move in moves],
        [move[3] for move in moves],
        movers or [100 + n for n in range(len(moves))],
        [n for n, _ in enumerate(keys, 1)],
        keys,
        [move[2] for move in moves[: len(keys)]],
        wait,
    )
    return answers


# Forward


@every_way
async def test_a_position_only_moves_forward(connection: Connection, move: Way) -> None:
    """Moving to where the subscription stands, or back, changes nothing and stores nothing."""
    await publish_many(connection, Send(await topic(connection), [b"x"] * 10))
    subscription = await subscribe(connection)
    for position, expected in [(3, 3), (3, 3), (1, 3), (7, 7), (0, 7), (-5, 7), (10, 10)]:
        await move(connection, [position])
        assert await places(connection, subscription) == [expected]
    assert await stored(connection, subscription) == [3, 7, 10]


@every_way
async def test_a_position_does_not_pass_the_end(connection: Connection, move: Way) -> None:
    """An entry that was not published cannot be confirmed."""
    await publish_many(connection, Send(await topic(connection), [b"x"] * 3))
    subscription = await subscribe(connection)
    await move(connection, [4])
    assert await places(connection, subscription) == [0]
    await move(connection, [3])
    assert await places(connection, subscription) == [3]


@pytest.mark.parametrize("move", BY_OFFSET)
async def test_a_reader_of_another_store_knows_more(connection: Connection, move: Way) -> None:
    """In a partition of another store a position may pass the end that is known here."""
    await topic(connection)
    subscription = await subscribe(connection)
    await connection.execute("update nuncius.partitions set store_id = 2")
    await move(connection, [5])
    assert await places(connection, subscription) == [5]


@every_way
async def test_the_highest_of_a_batch_counts(connection: Connection, move: Way) -> None:
    """Several moves of one position in one call end at the highest place."""
    await publish_many(connection, Send(await topic(connection), [b"x"] * 9))
    subscription = await subscribe(connection)
    await move(connection, [2, 7, 7, 4])
    assert await places(connection, subscription) == [7]


@pytest.mark.parametrize("move", BY_OFFSET)
async def test_retention_has_passed_the_position(connection: Connection, move: Way) -> None:
    """A subscription behind the first entry is read from there; moving below it changes nothing visible."""
    news = await topic(connection)
    await publish_many(connection, Send(news, [b"x"] * 4))
    subscription = await subscribe(connection)
    await connection.execute("select nuncius.purge_topic('news')")
    await publish_many(connection, Send(news, [b"x"] * 4))
    await move(connection, [2])
    assert await places(connection, subscription) == [4]
    await move(connection, [5])
    assert await places(connection, subscription) == [5]


@every_way
async def test_two_move_one_position_at_once(
    connection: Connection, other: Connection, observer: Connection, move: Way
) -> None:
    """A move in an open transaction keeps a higher one neither waiting nor from counting."""
    await publish_many(connection, Send(await topic(connection), [b"x"] * 9))
    subscription = await subscribe(connection)
    await connection.execute("begin")
    await by_confirm_many(connection, [5])
    await move(other, [7])
    await connection.execute("commit")
    assert await places(observer, subscription) == [7]


async def test_each_item_is_answered_for_itself(connection: Connection) -> None:
    """An item that cannot be carried out does not keep the others from moving."""
    news, far = await topic(connection, partitions=2), await topic(connection, "far")
    await publish_many(connection, Send(news, [b"x"] * 8, [1, 2] * 4), Send(far, [b"y"] * 3))
    sue, tom = await subscribe(connection), await subscribe(connection, "tom", "far")
    (one, two), (three,) = await partitions(connection), await partitions(connection, "far")
    items = [
        (sue, one, 2, 0),
        (sue, one, 4, 0),
        (sue, one, 1, 0),
        (sue, two, 9, NOT_PUBLISHED),
        (sue, two, None, NOT_PUBLISHED),
        (tom, three, 3, 0),
        (tom, one, 1, NOT_FOUND),  # a partition of another topic
        (999, one, 1, NOT_FOUND),
        (sue, 999, 1, NOT_FOUND),
        (None, one, 1, NOT_FOUND),
        (sue, None, 1, NOT_FOUND),
        (sue, two, 3, 0),
    ]
    codes = await connection.fetchval(
        "select nuncius.confirm_many($1, $2, $3)",
        *([item[column] for item in items] for column in range(3)),
    )
    assert codes == [item[3] for item in items]
    assert await places(connection, sue) == [4, 3]
    assert await places(connection, tom) == [3]


# From a known place


async def test_moves_from_the_known_place(connection: Connection) -> None:
    """A move names where the subscription stands; if it stands elsewhere, that is the answer."""
    await publish_many(connection, Send(await topic(connection), [b"x"] * 9))
    sue, (news,) = await subscribe(connection), await partitions(connection)
    assert await advance(connection, (sue, news, 0, 3)) == [MOVED]
    assert await advance(connection, (sue, news, 2, 4)) == [3]
    assert await advance(connection, (sue, news, 4, 5)) == [3]
    assert await advance(connection, (sue, news, 3, 4)) == [MOVED]
    assert await stored(connection, sue) == [3, 4]


async def test_each_move_is_answered_for_itself(connection: Connection) -> None:
    """Of several moves those that can be made are made."""
    news, far = await topic(connection, partitions=2), await topic(connection, "far")
    await publish_many(connection, Send(news, [b"x"] * 8, [1, 2] * 4), Send(far, [b"y"] * 3))
    sue, tom = await subscribe(connection), await subscribe(connection, "tom", "far")
    (one, two), (three,) = await partitions(connection), await partitions(connection, "far")
    moves = [(tom, three, 0, 2), (sue, one, 1, 2), (999, one, 0, 1), (tom, one, 0, 1), (sue, two, 0, 4)]
    assert await advance(connection, *moves) == [MOVED, 0, NOT_FOUND, NOT_FOUND, MOVED]
    assert await places(connection, sue) == [0, 4]
    assert await places(connection, tom) == [2]


async def test_the_known_place_is_where_retention_left_it(connection: Connection) -> None:
    """A subscription that retention has passed stands at the first entry that is left."""
    news = await topic(connection)
    await publish_many(connection, Send(news, [b"x"] * 4))
    sue, (first,) = await subscribe(connection), await partitions(connection)
    await connection.execute("select nuncius.purge_topic('news')")
    await publish_many(connection, Send(news, [b"x"] * 4))
    assert await advance(connection, (sue, first, 0, 1)) == [4]
    assert await advance(connection, (sue, first, 4, 5)) == [MOVED]
    assert await places(connection, sue) == [5]


async def test_a_repeated_move_is_recognised(connection: Connection) -> None:
    """A repeated move of the same mover counts as made, also when others have moved on since."""
    await publish_many(connection, Send(await topic(connection), [b"x"] * 9))
    sue, (news,) = await subscribe(connection), await partitions(connection)
    assert await advance(connection, (sue, news, 0, 3), movers=[1]) == [MOVED]
    assert await advance(connection, (sue, news, 0, 3), movers=[1]) == [MOVED]
    assert await advance(connection, (sue, news, 0, 3), movers=[2]) == [3]
    assert await advance(connection, (sue, news, 3, 5), movers=[2]) == [MOVED]
    await connection.execute("select nuncius.tidy()")
    assert await advance(connection, (sue, news, 0, 3), movers=[1]) == [MOVED]
    assert await advance(connection, (sue, news, 0, 4), movers=[1]) == [5]
    assert await stored(connection, sue) == [3, 5]


async def test_a_confirmation_is_not_a_mover(connection: Connection) -> None:
    """A move to a place that was confirmed meanwhile was not made by its mover."""
    await publish_many(connection, Send(await topic(connection), [b"x"] * 9))
    sue, (news,) = await subscribe(connection), await partitions(connection)
    await by_confirm_many(connection, [3])
    assert await advance(connection, (sue, news, 0, 3)) == [3]


async def test_a_seek_forgets_movers(connection: Connection) -> None:
    """After a seek back the same way can be gone again, by any mover."""
    await publish_many(connection, Send(await topic(connection), [b"x"] * 9))
    sue, (news,) = await subscribe(connection), await partitions(connection)
    assert await advance(connection, (sue, news, 0, 3), movers=[1]) == [MOVED]
    assert await connection.fetchval("select nuncius.seek($1, '{1}', '{0}')", sue) is None
    assert await places(connection, sue) == [0]
    assert await advance(connection, (sue, news, 0, 3), movers=[2]) == [MOVED]


async def test_a_key_moves_once(connection: Connection) -> None:
    """A request's key that was used moves nothing; repeated by its own mover it counts as made."""
    await publish_many(connection, Send(await topic(connection), [b"x"] * 9))
    sue, (news,) = await subscribe(connection), await partitions(connection)
    assert await advance(connection, (sue, news, 0, 1), keys=["k"], movers=[1]) == [MOVED]
    assert await advance(connection, (sue, news, 0, 1), keys=["k"], movers=[1]) == [MOVED]
    assert await advance(connection, (sue, news, 1, 2), keys=["k"], movers=[2]) == [KEY_KNOWN]
    assert await advance(connection, (sue, news, 0, 2), keys=["k"], movers=[2]) == [1]
    assert await advance(connection, (sue, news, 0, 2), keys=["new"], movers=[2]) == [1]
    assert await advance(connection, (sue, news, 1, 2), keys=["new"], movers=[2]) == [MOVED]
    found = await connection.fetch("select request_key, entry_offset from nuncius.consumed order by 1")
    assert list(map(tuple, found)) == [("k", 0), ("new", 1)]


async def test_a_known_key_stops_only_its_own_item(connection: Connection) -> None:
    """Items of one call that have another key, or none, are moved."""
    await publish_many(connection, Send(await topic(connection, partitions=3), [b"x"] * 9, [1, 2, 3] * 3))
    sue, (one, two, three) = await subscribe(connection), await partitions(connection)
    await advance(connection, (sue, one, 0, 1), keys=["k"])
    moves = [(sue, one, 1, 2), (sue, two, 0, 1), (sue, three, 0, 1)]
    assert await advance(connection, *moves, keys=["k", "l"]) == [KEY_KNOWN, MOVED, MOVED]
    assert await places(connection, sue) == [1, 1, 1]


@pytest.mark.parametrize("keys", [[], ["k", "l"]])
async def test_a_busy_subscription_does_not_hold_up_others(
    connection: Connection, other: Connection, keys: Sequence[str]
) -> None:
    """A caller that does not wait is told which subscription is busy; the others are moved."""
    await publish_many(connection, Send(await topic(connection), [b"x"] * 9))
    sue, tom = await subscribe(connection), await subscribe(connection, "tom")
    (news,) = await partitions(connection)
    await other.execute("begin")
    await other.execute("select pg_advisory_xact_lock($1, $2)", CONSUMER_LOCK, sue)
    await connection.execute("set lock_timeout = '10ms'")
    moves = [(sue, news, 0, 1), (tom, news, 0, 1)]
    assert await advance(connection, *moves, keys=keys, wait=False) == [BUSY, MOVED]
    assert await connection.fetchval("select count(*) from nuncius.consumed") == len(keys[1:])
    await other.execute("commit")
    assert await advance(connection, *moves[:1], keys=keys[:1], wait=False) == [MOVED]


async def test_one_of_two_moves_at_once_is_made(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """The second of two moves from one place waits for the first, and learns where that went."""
    await publish_many(connection, Send(await topic(connection), [b"x"] * 9))
    sue, (news,) = await subscribe(connection), await partitions(connection)
    await connection.execute("begin")
    assert await advance(connection, (sue, news, 0, 3)) == [MOVED]
    second = asyncio.ensure_future(advance(other, (sue, news, 0, 1)))
    await until_waiting(observer, other.get_server_pid())
    await connection.execute("commit")
    assert await second == [3]


async def test_locks_are_taken_in_order(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """A call that waits for its lowest subscription does not hold a higher one yet."""
    await publish_many(connection, Send(await topic(connection), [b"x"] * 9))
    (sue, tom), (news,) = (
        sorted([await subscribe(connection, who) for who in "st"]),
        await partitions(connection),
    )
    await connection.execute("begin")
    await connection.execute("select pg_advisory_xact_lock($1, $2)", CONSUMER_LOCK, sue)
    waiting = asyncio.ensure_future(advance(other, (tom, news, 0, 1), (sue, news, 0, 1)))
    await until_waiting(observer, other.get_server_pid())
    assert await observer.fetchval("select pg_try_advisory_xact_lock($1, $2)", CONSUMER_LOCK, tom)
    await connection.execute("commit")
    assert await waiting == [MOVED, MOVED]


async def test_a_move_made_before_is_told_from_one_made_now(connection: Connection) -> None:
    """The procedure under all of these says which: so a key is stored with the move that it belongs to."""
    await publish_many(connection, Send(await topic(connection), [b"x"] * 9))
    sue, (news,) = await subscribe(connection), await partitions(connection)
    move = "select nuncius.move_positions(array[$1::int], array[$2::int], '{3}', '{0}', array[$3::bigint])"
    answers = [(await connection.fetchval(move, sue, news, mover))[0] for mover in (1, 1, 2)]
    assert answers == [MOVED, MOVED_BEFORE, 3]


async def test_a_caller_that_has_checked_is_not_checked_again(connection: Connection) -> None:
    """Its items without a place are passed over, the others only move forward, and there is no answer."""
    await topic(connection)
    sue, (news,) = await subscribe(connection), await partitions(connection)
    for places_, expected in [([3, None, 2], 3), ([1, None, None], 3), ([4, 4, None], 4)]:
        answers = await connection.fetchval(
            "select nuncius.move_positions($1, $2, $3, p_checked => true)", [sue] * 3, [news] * 3, places_
        )
        assert answers is None
        assert await places(connection, sue) == [expected]


# As a member of a group


async def confirm_as_member(
    connection: Connection, member: int, generation: int, *moves: tuple[int, int]
) -> tuple[int | None, int | None]:
    """The code, and the partition that is wrong."""
    row = await connection.fetchrow(
        "select code, wrong from nuncius.confirm_as_member($1, $2, $3, $4)",
        member,
        generation,
        [partition for partition, _ in moves],
        [position for _, position in moves],
    )
    assert row is not None
    return row["code"], row["wrong"]


async def test_a_member_moves_all_or_nothing(connection: Connection) -> None:
    """The first item that cannot be carried out is named, and nothing moves."""
    await publish_many(connection, Send(await topic(connection, partitions=3), [b"x"] * 6, [1, 2] * 3))
    sue = await subscribe(connection)
    member, now = await join(connection)
    assert await confirm_as_member(connection, 999, now, (1, 1)) == (NOT_FOUND, None)
    assert await confirm_as_member(connection, member, now, (1, 1), (2, 4), (9, 1)) == (NOT_PUBLISHED, 2)
    assert await confirm_as_member(connection, member, now, (9, 1), (2, 4)) == (NOT_OWNER, 9)
    assert await places(connection, sue) == [0, 0, 0]
    assert await confirm_as_member(connection, member, now, (1, 1), (2, 3), (1, 2)) == (None, None)
    assert await places(connection, sue) == [2, 3, 0]


async def test_a_member_must_have_owned_the_partition(connection: Connection) -> None:
    """A generation before the member had its partition does not confirm; a later one does."""
    await publish_many(connection, Send(await topic(connection, partitions=2), [b"x"] * 6, [1, 2] * 3))
    sue = await subscribe(connection)
    first, before = await join(connection)
    second, _ = await join(connection)
    await connection.fetch("select * from nuncius.shares_of($1)", first)  # lets go of one partition
    rows = await connection.fetch("select partition, generation from nuncius.shares_of($1)", second)
    ((taken, now),) = [tuple(row) for row in rows]
    kept = 3 - taken
    assert await confirm_as_member(connection, first, before, (taken, 1)) == (NOT_OWNER, taken)
    assert await confirm_as_member(connection, first, now, (kept, 1), (taken, 1)) == (NOT_OWNER, taken)
    assert await confirm_as_member(connection, second, before, (taken, 1)) == (NOT_OWNER, taken)
    assert await places(connection, sue) == [0, 0]
    assert await confirm_as_member(connection, second, now, (taken, 1)) == (None, None)
    assert await confirm_as_member(connection, first, before, (kept, 1)) == (None, None)
    assert await places(connection, sue) == [1, 1]


async def test_a_member_waits_for_a_change_of_its_group(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """While partitions change hands no member moves a position; members do not wait for one another."""
    await publish_many(connection, Send(await topic(connection), [b"x"] * 3))
    sue = await subscribe(connection)
    member, now = await join(connection)
    await connection.execute("begin")
    await connection.execute("select nuncius.leave_group($1)", [member])
    late = asyncio.ensure_future(confirm_as_member(other, member, now, (1, 1)))
    await until_waiting(observer, other.get_server_pid())
    await connection.execute("rollback")
    assert await late == (None, None)
    await connection.execute("begin")
    assert await confirm_as_member(connection, member, now, (1, 2)) == (None, None)
    assert await confirm_as_member(other, member, now, (1, 3)) == (None, None)
    await connection.execute("commit")
    assert await places(connection, sue) == [3]
