"""What people do by hand with messages."""

import asyncio

import pytest

from nuncius.broker import Broker, future
from nuncius.broker.errors import InvalidInput, NoSuchQueue
from nuncius.broker.model import Letter
from nuncius.broker.observe.facts import Facts, Wish
from nuncius.broker.observe.facts_actions import NotDead
from nuncius.store.driver import Connection


@pytest.fixture
def facts(broker: Broker) -> Facts:
    return Facts(broker)


async def put(broker: Broker, queue_id: int, *letters: Letter) -> None:
    stored, done = future.new()
    broker.queues.put_soon(queue_id, letters, done)
    await stored


async def test_moving_and_removing(broker: Broker, facts: Facts) -> None:
    """Messages go to another queue behind their equals, once; who waits there gets them."""
    one, two = await broker.queues.create("one"), await broker.queues.create("two")
    await put(broker, one.queue_id, Letter(b"a", 5, headers='{"h": "v"}'), Letter(b"b", 5), Letter(b"c", 5))
    ids = [each.message_id for each in (await facts.queues.messages(one.queue_id)).rows]
    assert await facts.actions.move(one.queue_id, [*ids[:2], 10**9], two.queue_id) == 2
    assert await facts.actions.move(one.queue_id, ids[:2], two.queue_id) == 0, "they have gone"
    taken = await broker.queues.take(two.queue_id, limit=5)
    assert [(each.body, each.priority, each.headers) for each in taken] == [
        (b"a", 5, '{"h": "v"}'),
        (b"b", 5, None),
    ]
    assert await facts.actions.remove(one.queue_id, ids) == 1
    with pytest.raises(NoSuchQueue):
        await facts.actions.move(one.queue_id, ids, 99)
    with pytest.raises(InvalidInput):
        await facts.actions.move(one.queue_id, ids, one.queue_id)
    with pytest.raises(InvalidInput):
        await facts.actions.remove(one.queue_id, [])


async def test_moving_while_others_take(broker: Broker, second: Broker, facts: Facts) -> None:
    """Each message is taken once, from the one queue or the other, whoever is first."""
    one, two = await broker.queues.create("one"), await broker.queues.create("two")
    await put(broker, one.queue_id, *(Letter(b"%d" % number, 1 + number % 10) for number in range(300)))
    ids = [
        each.message_id for each in (await facts.queues.messages(one.queue_id, Wish("age", limit=300))).rows
    ]

    async def take_all(queue_id: int, reader: Broker) -> list[bytes]:
        taken: list[bytes] = []
        while some := await reader.queues.take(queue_id, limit=7):
            taken += [each.body for each in some]
        return taken

    moves = [facts.actions.move(one.queue_id, ids[at : at + 50], two.queue_id) for at in range(0, 300, 50)]
    taking = asyncio.ensure_future(take_all(one.queue_id, second))
    moved = await asyncio.gather(*moves)
    first = await taking
    rest = await take_all(two.queue_id, broker)
    assert sorted(first + rest, key=int) == [b"%d" % number for number in range(300)]
    assert (len(first), len(rest)) == (300 - sum(moved), sum(moved))


async def test_republishing(broker: Broker, facts: Facts) -> None:
    """A copy of a message goes into a topic, and one of an entry into another."""
    queue = await broker.queues.create("q")
    await put(broker, queue.queue_id, Letter(b"a", headers='{"h": "v"}'))
    (message,) = (await facts.queues.messages(queue.queue_id)).rows
    await facts.actions.message_to_topic(queue.queue_id, message.message_id, "t")
    await facts.actions.republish("t", 1, 0, "u")
    (copy,) = await facts.topics.entries("u", 1, 0)
    assert (copy.preview, copy.headers) == (b"a", {"h": "v"})
    assert (await facts.queues.messages(queue.queue_id)).total == 1, "the original stays"


async def test_dead_letters_come_back(broker: Broker, facts: Facts) -> None:
    """To where they came from, without what was written on them; only dead letters can."""
    dead = await broker.queues.create("dead/q")
    headers = '{"dead-reason": "no", "own": "yes"}'
    await put(broker, dead.queue_id, Letter(b"a", 7, headers=headers))
    await broker.topics.publish("dead/t", [b"b"], headers=[headers])
    places = await facts.subscriptions.dead_letters()
    assert [(each.kind, each.name, each.origin, each.count) for each in places] == [
        ("queue", "dead/q", "q", 1),
        ("topic", "dead/t", "t", 1),
    ]
    (letter,) = (await facts.queues.messages(dead.queue_id)).rows
    assert await facts.actions.revive_messages(dead.queue_id, [letter.message_id]) == 1
    queue = await broker.queues.find("q")
    (back,) = await broker.queues.take(queue.queue_id)
    assert (back.body, back.priority, back.headers) == (b"a", 7, '{"own": "yes"}')
    await facts.actions.revive_entry("dead/t", 1, 0)
    (entry,) = await facts.topics.entries("t", 1, 0)
    assert (entry.preview, entry.headers) == (b"b", {"own": "yes"})
    with pytest.raises(NotDead):
        await facts.actions.revive_messages(queue.queue_id, [1])


async def test_what_waits_for_its_next_attempt_comes_now(
    broker: Broker, facts: Facts, connection: Connection
) -> None:
    """A message that failed does not have to wait when somebody says so."""
    queue = await broker.queues.create("q")
    await put(broker, queue.queue_id, Letter(b"a"))
    leased, done = future.new()
    broker.queues.lease_soon(queue.queue_id, 0, done)
    (lease,) = await leased
    released, done = future.new()
    broker.leases.release_soon([lease.lease_id], done, reason="not now")
    await released
    await connection.execute("update nuncius.leases set due_at = now() + interval '1 h'")
    (shown,) = (await facts.queues.page()).rows
    assert (shown.depth, shown.leased, shown.waiting) == (0, 0, 1)
    assert await facts.actions.retry_now(queue.queue_id) == 1
    assert await facts.actions.retry_now(queue.queue_id) == 0
    await broker.leases.return_due()
    assert (await facts.queues.page()).rows[0].depth == 1


async def test_nodes_that_are_gone_are_forgotten(facts: Facts, connection: Connection) -> None:
    """A silent node can be removed from the list, and one that said goodbye is not in it; a node that is
    alive, has a store of its own, or partitions that no other serves, stays."""
    await connection.execute("select nuncius.create_topic('t')")
    for port, store_id in ((1, 1), (2, 1), (3, 1), (4, 1), (5, 2)):
        await connection.execute("select nuncius.enter_node('h', $1, 1, '{broker}', $2)", port, store_id)
    await connection.execute(
        "update nuncius.nodes set last_heard = case port when 2 then null else now() - interval '1 min' end"
        " where port <> 1"
    )
    await connection.execute("insert into nuncius.assignments (partition_id, broker_id) values (1, 4)")
    ids = [each.node_id for each in await facts.cluster.nodes()]
    assert await facts.actions.forget_nodes([*ids, 10**6]) == 1
    assert [each.port for each in await facts.cluster.nodes()] == [1, 4, 5]
