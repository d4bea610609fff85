"""Consumer groups: partitions are shared out, handed over, and taken over."""

import asyncio

import pytest

from nuncius.broker import Broker
from nuncius.broker.delivery.shared import MemberEntries, NoSuchMember, NotOwner
from nuncius.broker.errors import InvalidInput, NoSuchSubscription, StoreUnavailable
from nuncius.store.driver import Connection
from racing import until


async def group(broker: Broker, partitions: int = 4) -> None:
    await broker.topics.create("t", partitions)
    await broker.subscriptions.subscribe("t", "sue", start="earliest")


async def join(broker: Broker, name: str = "m", session: float = 60) -> int:
    return await broker.groups.join("t", "sue", name, session)


async def shares(broker: Broker) -> dict[int, tuple[int, ...]]:
    return {each.member_id: each.partitions for each in await broker.groups.members("t", "sue")}


async def confirm(broker: Broker, member: int, portion: MemberEntries) -> None:
    places = {piece.partition: piece.next_offset for piece in portion.entries}
    await broker.groups.confirm(member, portion.generation, list(places), list(places.values()))


def bodies(portion: MemberEntries) -> list[bytes]:
    return [body for piece in portion.entries for body in piece.entries.bodies]


async def test_partitions_are_shared_out(broker: Broker) -> None:
    """Evenly, and with as few moves as possible; all of them always belong to somebody."""
    await group(broker, 7)
    members = [await join(broker) for _ in range(3)]
    for _ in range(2):
        for member in members:
            await broker.groups.shares(member)
    now = await shares(broker)
    assert sorted(len(partitions) for partitions in now.values()) == [2, 2, 3]
    assert sorted(sum(now.values(), ())) == [1, 2, 3, 4, 5, 6, 7]
    await broker.groups.leave(members[1])
    after = await shares(broker)
    assert sorted(sum(after.values(), ())) == [1, 2, 3, 4, 5, 6, 7]
    for member, partitions in after.items():
        assert set(now[member]) <= set(partitions), "what it had it keeps"
    await broker.groups.leave(members[0])
    await broker.groups.leave(members[2])
    assert await shares(broker) == {}
    assert await join(broker)
    assert sorted(sum((await shares(broker)).values(), ())) == [1, 2, 3, 4, 5, 6, 7]


async def test_more_members_than_partitions(broker: Broker) -> None:
    """Some have nothing, until another one leaves."""
    await group(broker, 1)
    one, two = await join(broker), await join(broker)
    await broker.topics.publish("t", [b"x"])
    assert bodies(await broker.groups.read(one, 10)) == [b"x"]
    waiting = asyncio.ensure_future(broker.groups.read(two, 10, wait=20))
    await broker.groups.leave(one)
    assert bodies(await waiting) == [b"x"]


async def test_what_is_not_confirmed_comes_again(broker: Broker) -> None:
    """A member gets the same again until it confirms; then what comes after."""
    await group(broker, 1)
    member = await join(broker)
    await broker.topics.publish("t", [b"a", b"b"])
    assert bodies(await broker.groups.read(member, 10)) == [b"a", b"b"]
    portion = await broker.groups.read(member, 10)
    assert bodies(portion) == [b"a", b"b"]
    await broker.groups.confirm(member, portion.generation, [1], [1])
    assert bodies(await broker.groups.read(member, 10)) == [b"b"]
    with pytest.raises(InvalidInput):
        await broker.groups.confirm(member, portion.generation, [1], [99])
    with pytest.raises(NotOwner):
        await broker.groups.confirm(member, portion.generation, [2], [1])
    assert bodies(await broker.groups.read(member, 1)) == [b"b"]


async def test_a_partition_changes_hands_when_its_owner_is_done(broker: Broker) -> None:
    """A new member gets nothing that somebody works on; the owner can confirm it until it asks for more."""
    await group(broker, 2)
    for partition in (1, 2):
        await broker.topics.publish("t", [b"%d" % partition], partition=partition)
    one = await join(broker)
    portion = await broker.groups.read(one, 10)
    assert sorted(bodies(portion)) == [b"1", b"2"]
    two = await join(broker)
    assert bodies(await broker.groups.read(two, 10)) == []
    await confirm(broker, one, portion)
    waiting = asyncio.ensure_future(broker.groups.read(two, 10, wait=20))
    await broker.topics.publish("t", [b"3"], partition=1)
    await broker.topics.publish("t", [b"4"], partition=2)
    assert not waiting.done()
    mine = await broker.groups.read(one, 10)
    theirs = await waiting
    assert sorted(bodies(mine) + bodies(theirs)) == [b"3", b"4"]
    assert sorted(mine.partitions + theirs.partitions) == [1, 2]


async def test_an_owner_that_lost_its_partition_is_told(broker: Broker, connection: Connection) -> None:
    """One that took too long cannot confirm what is another's now, though it has it back later."""
    await group(broker, 1)
    await broker.topics.publish("t", [b"x"])
    one = await join(broker)
    portion = await broker.groups.read(one, 10)
    two = await join(broker)
    await broker.groups.leave(two)
    await broker.groups.confirm(one, portion.generation, [1], [0])  # nobody took it meanwhile
    await connection.execute("update nuncius.members set joined_at = now() where member_id = $1", one)
    three = await join(broker)
    await connection.execute("update nuncius.shares set wanted_by = $1, due_at = now()", three)
    assert bodies(await broker.groups.read(three, 10)) == [b"x"]
    with pytest.raises(NotOwner):
        await broker.groups.confirm(one, portion.generation, [1], [1])
    await broker.groups.leave(three)
    assert (await shares(broker)) == {one: (1,)}
    with pytest.raises(NotOwner):
        await broker.groups.confirm(one, portion.generation, [1], [1])
    await confirm(broker, one, await broker.groups.read(one, 10))


async def test_a_wanted_partition_is_handed_over_at_last(broker: Broker, connection: Connection) -> None:
    """An owner that is alive and does not come for more keeps a partition no longer than its session."""
    await group(broker, 2)
    one, two = await join(broker), await join(broker)
    assert await shares(broker) == {one: (1, 2), two: ()}
    await connection.execute("update nuncius.shares set due_at = now() where due_at is not null")
    await connection.execute("select nuncius.expire_members()")
    assert sorted(map(len, (await shares(broker)).values())) == [1, 1]


async def test_a_silent_member_leaves(broker: Broker, connection: Connection) -> None:
    """One that was not heard in its session's time is gone, and its partitions are another's."""
    await group(broker)
    one, two = await join(broker, session=5), await join(broker, session=5)
    await broker.groups.note()
    await connection.execute(
        "update nuncius.members set last_seen = now() - interval '6 seconds' where member_id = $1", one
    )
    await broker.groups.heartbeat(two)
    assert await connection.fetchval("select nuncius.expire_members()") == 1
    assert await shares(broker) == {two: (1, 2, 3, 4)}
    for attempt in (
        broker.groups.read(one, 1),
        broker.groups.heartbeat(one),
        broker.groups.confirm(one, 99, [1], [0]),
        broker.groups.leave(one),
        broker.groups.check(10**6, "t", "sue"),
    ):
        with pytest.raises(NoSuchMember):
            await attempt


async def test_who_was_heard_is_not_forgotten(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the store cannot be told of members that were heard, it is told the next time."""
    await group(broker)
    member = await join(broker)
    told: list[object] = []

    async def query(_: str, members: object, __: int) -> None:
        told.append(members)
        if len(told) == 1:
            raise StoreUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "query", query)
        broker.groups._heard.add(member)  # noqa: SLF001
        with pytest.raises(StoreUnavailable):
            await broker.groups.note()
        await broker.groups.note()
    assert told == [[member], [member]]


async def test_a_members_node_dies(broker: Broker, second: Broker, connection: Connection) -> None:
    """Members of a node that is gone are gone at once, without waiting for their session to end."""
    await group(broker, 2)
    one, two = await join(broker), await join(second)
    await connection.execute("delete from nuncius.holders where holder = $1", second._listener.holder)  # noqa: SLF001
    await until(lambda: broker._listener.may_judge)  # noqa: SLF001
    await broker.groups.expire()
    assert await shares(broker) == {one: (1, 2)}
    with pytest.raises(NoSuchMember):
        await second.groups.shares(two)


async def test_a_topic_grows(broker: Broker) -> None:
    """New partitions are shared out when somebody asks."""
    await group(broker, 1)
    member = await join(broker)
    await broker.groups.shares(member)
    await broker.topics.grow("t", 3)
    await broker.topics.publish("t", [b"x"], partition=3)
    assert bodies(await broker.groups.read(member, 10)) == [b"x"]
    assert await shares(broker) == {member: (1, 2, 3)}


async def test_wrong_input(broker: Broker) -> None:
    """A group belongs to a subscription, a session has limits."""
    await group(broker)
    with pytest.raises(NoSuchSubscription):
        await broker.groups.join("t", "bob", "m", 10)
    for session in (0.1, 1e6):
        with pytest.raises(InvalidInput):
            await join(broker, session=session)
    member = await join(broker)
    await broker.groups.check(member, "t", "sue")
    with pytest.raises(NoSuchMember):
        await broker.groups.check(member, "t", "bob")


async def test_an_end_of_the_subscription_ends_the_group(broker: Broker) -> None:
    """Nothing of it stays."""
    await group(broker)
    member = await join(broker)
    await broker.subscriptions.unsubscribe("t", "sue")
    with pytest.raises(NoSuchMember):
        await broker.groups.read(member, 1)


async def test_members_that_come_and_go_under_load(broker: Broker, second: Broker) -> None:
    """Whoever joins and leaves, everything that is confirmed is confirmed once, and nothing is missed."""
    await group(broker, 6)
    total = 300
    await broker.topics.publish("t", [b"%d" % n for n in range(total)], keys=[str(n) for n in range(total)])
    confirmed: list[bytes] = []

    async def work(node: Broker, rounds: int) -> None:
        member = await node.groups.join("t", "sue", "m", 60)
        for _ in range(rounds):
            portion = await node.groups.read(member, 7)
            if not portion.entries:
                continue
            await confirm(node, member, portion)
            confirmed.extend(bodies(portion))
        await node.groups.leave(member)

    while len(confirmed) < total:
        await asyncio.gather(*(work(node, rounds) for node in (broker, second) for rounds in (3, 9, 14)))
    assert sorted(confirmed, key=int) == [b"%d" % n for n in range(total)]
