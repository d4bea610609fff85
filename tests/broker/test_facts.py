"""What consoles and command lines show: right, paged by the store, and bounded."""

from datetime import UTC, datetime, timedelta

import pytest

from nuncius.broker import Broker, future
from nuncius.broker.errors import InvalidInput, NoSuchTopic
from nuncius.broker.model import Letter
from nuncius.broker.observe import facts_queues
from nuncius.broker.observe.facts import Facts, Overview, Wish
from nuncius.broker.observe.facts_page import MOST_OFFSET
from nuncius.broker.observe.facts_queues import NoSuchMessage
from nuncius.broker.observe.facts_topics import NoSuchEntry
from nuncius.broker.observe.findings import Severity, problems
from nuncius.store.driver import Connection


@pytest.fixture
def facts(broker: Broker) -> Facts:
    return Facts(broker)


async def put(broker: Broker, queue_id: int, *letters: Letter) -> None:
    stored, done = future.new()
    broker.queues.put_soon(queue_id, letters, done)
    await stored


async def test_queues(broker: Broker, facts: Facts) -> None:
    """Depth by priority, the oldest message, receivers; sorted by name or depth, searched, paged."""
    ids = {name: (await broker.queues.create(name)).queue_id for name in ("a", "b", "c")}
    client = await broker.clients.register("somebody")
    before = datetime.now(UTC) - timedelta(seconds=1)
    await put(broker, ids["b"], Letter(b"1", 3), Letter(b"2", 3), Letter(b"3", 10, receiver=client.client_id))
    await put(broker, ids["c"], Letter(b"x", 1))
    page = await facts.queues.page()
    assert ([each.name for each in page.rows], page.total, page.is_exact) == (["a", "b", "c"], 3, True)
    empty, full, _ = page.rows
    assert (empty.depth, empty.oldest, empty.depths) == (0, None, (0,) * 10)
    assert (full.depth, full.depths[2], full.depths[9], full.receivers) == (3, 2, 1, 1)
    assert full.is_exact
    assert full.oldest is not None
    assert before < full.oldest < datetime.now(UTC) + timedelta(seconds=1)
    deepest = await facts.queues.page(Wish("depth", descending=True, limit=2))
    assert ([each.name for each in deepest.rows], deepest.total) == (["b", "c"], 3)
    rest = await facts.queues.page(Wish("depth", descending=True, offset=2))
    assert [each.name for each in rest.rows] == ["a"]
    assert [each.name for each in (await facts.queues.page(Wish(search="B"))).rows] == ["b"]
    beyond = await facts.queues.page(Wish(offset=10))
    assert (beyond.rows, beyond.total) == ((), 3)
    assert await facts.queues.deepest(1) == ([("b", 3, full.oldest)], 1)
    assert await facts.queues.names([ids["a"], 99]) == {ids["a"]: "a"}
    assert await facts.queues.one(99) is None


async def test_depth_beyond_the_bound(broker: Broker, facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too much to count at once is known from the last count of everything, and said to be so."""
    monkeypatch.setattr(facts_queues, "BOUND", 5)
    queue = await broker.queues.create("q")
    await put(broker, queue.queue_id, *[Letter(b"x", 4)] * 20)
    shown = await facts.queues.one(queue.queue_id)
    assert shown is not None
    assert (shown.depth, shown.is_exact, shown.depths[3]) == (20, False, 5)
    messages = await facts.queues.messages(queue.queue_id)
    assert (messages.total, messages.is_exact) == (20, False)


async def test_depths_are_not_counted_again_at_once(broker: Broker, facts: Facts) -> None:
    """A count serves for a while, so that open pages do not keep the store busy."""
    queue = await broker.queues.create("q")
    await put(broker, queue.queue_id, Letter(b"x"))
    assert await facts.queues.depths() == {queue.queue_id: 1}
    await put(broker, queue.queue_id, Letter(b"y"))
    assert await facts.queues.depths() == {queue.queue_id: 1}
    assert (await facts.queues.page()).rows[0].depth == 2, "what is shown is counted anew"


async def test_messages_of_a_queue(broker: Broker, facts: Facts) -> None:
    """In reading order or by age, from either end, page by page; nothing is taken."""
    queue = await broker.queues.create("q")
    sender, receiver = await broker.clients.register("s"), await broker.clients.register("r")
    await put(
        broker,
        queue.queue_id,
        Letter(b"low", 1),
        Letter(b"high", 9, sender=sender.client_id, headers='{"a": "b"}'),
        Letter(b"hers", 5, receiver=receiver.client_id),
        Letter(b"m" * 1000, 5),
    )

    async def shown(wish: Wish) -> list[bytes]:
        page = await facts.queues.messages(queue.queue_id, wish)
        assert (page.total, page.is_exact) == (4, True)
        return [each.preview[:4] for each in page.rows]

    assert await shown(Wish("priority")) == [b"high", b"hers", b"mmmm", b"low"]
    assert await shown(Wish("priority", descending=True)) == [b"low", b"mmmm", b"hers", b"high"]
    assert await shown(Wish("age")) == [b"low", b"high", b"hers", b"mmmm"]
    assert await shown(Wish("age", descending=True, offset=1, limit=2)) == [b"hers", b"high"]
    first, second, third, _ = (await facts.queues.messages(queue.queue_id)).rows
    assert (first.sender, first.receiver, first.headers) == ("s", None, {"a": "b"})
    assert (second.receiver, third.size, len(third.preview)) == ("r", 1000, 200)
    whole = await facts.queues.message(queue.queue_id, third.message_id)
    assert (whole.body, whole.priority, whole.headers) == (b"m" * 1000, 5, {})
    assert (whole.sender, whole.receiver) == (None, None)
    named = [await facts.queues.message(queue.queue_id, each.message_id) for each in (first, second)]
    assert [(each.sender, each.receiver) for each in named] == [("s", None), (None, "r")]
    with pytest.raises(NoSuchMessage):
        await facts.queues.message(queue.queue_id, 10**9)


@pytest.mark.parametrize(
    "wish", [Wish("weight"), Wish(limit=0), Wish(limit=1001), Wish(offset=-1), Wish(offset=MOST_OFFSET + 1)]
)
async def test_wishes_are_checked(facts: Facts, wish: Wish) -> None:
    """What cannot be sorted by, and pages without bounds, are refused."""
    with pytest.raises(InvalidInput):
        await facts.queues.page(wish)
    with pytest.raises(InvalidInput):
        await facts.topics.page(wish)


async def test_topics(broker: Broker, facts: Facts) -> None:
    """Partitions with offsets and size; sorted by what they hold."""
    await broker.topics.create("small", 2)
    await broker.topics.create("large")
    await broker.topics.publish("small", [b"x"], partition=2)
    await broker.topics.publish("large", [b"12345678"] * 3)
    page = await facts.topics.page(Wish("entries", descending=True))
    assert ([each.name for each in page.rows], page.total) == (["large", "small"], 2)
    large, small = page.rows
    assert (large.entries, large.bytes, large.published, large.subscriptions) == (3, 24, 3, 0)
    assert [(each.first, each.next, each.entries) for each in small.partitions] == [(0, 0, 0), (0, 1, 1)]
    assert large.latest is not None
    await broker.topics.purge("large")
    large = await facts.topics.one("large")
    assert (large.entries, large.published, large.latest) == (0, 3, None)
    assert await facts.topics.fullest(1) == [("small", 1, 1), (None, 0, 3)]
    with pytest.raises(NoSuchTopic):
        await facts.topics.one("none")


async def test_entries(broker: Broker, facts: Facts, connection: Connection) -> None:
    """By offset, by time, the last of all partitions, and one as a whole."""
    await broker.topics.create("t", 2)
    publisher = await broker.publishers.find("p", lasting=True)
    await broker.topics.publish("t", [b"a" * 300, b"b"], partition=1, publisher=publisher, count=1)
    await broker.topics.publish("t", [b"c"], partition=2, keys=["k"], headers=['{"h": "v"}'])
    await connection.execute(
        "update nuncius.entries set time_of_arrival = now() - interval '1 h' where entry_offset = 0"
    )
    first, second = await facts.topics.entries("t", 1, 0)
    assert (first.offset, first.size, len(first.preview), first.publisher) == (0, 300, 200, "p")
    assert (await facts.topics.entries("t", 1, 1)) == [second]
    since = datetime.now(UTC) - timedelta(minutes=1)
    assert await facts.topics.entries_since("t", 1, since) == [second]
    assert [each.preview[:1] for each in await facts.topics.tail("t")] == [b"a", b"c", b"b"]
    assert [each.preview for each in await facts.topics.tail("t", 1)] == [b"b"]
    whole = await facts.topics.entry("t", 1, 0)
    assert whole.preview == b"a" * 300
    (other,) = await facts.topics.entries("t", 2, 0)
    assert (other.key, other.headers, other.publisher) == ("k", {"h": "v"}, None)
    with pytest.raises(NoSuchEntry):
        await facts.topics.entry("t", 1, 7)
    with pytest.raises(InvalidInput):
        await facts.topics.entries("t", 1, 0, 0)
    with pytest.raises(InvalidInput):
        await facts.topics.entries("t", 3, 0)


async def test_entries_in_another_store(broker: Broker, facts: Facts, connection: Connection) -> None:
    """They are read as any reader of that topic reads them."""
    await broker.topics.publish("t", [b"a" * 300, b"b"], keys=["k", None], headers=['{"h": "v"}', None])
    await connection.execute("update nuncius.partitions set store_id = 2")
    first, second = await facts.topics.entries("t", 1, 0)
    assert (first.size, len(first.preview), first.key, first.headers) == (300, 200, "k", {"h": "v"})
    assert (second.offset, second.preview, second.key, second.headers) == (1, b"b", None, {})
    assert await facts.topics.entries("t", 1, 2) == []


async def test_subscriptions(broker: Broker, facts: Facts, connection: Connection) -> None:
    """Places, lag, and what could not be delivered; the one furthest behind first if wanted."""
    slow = await broker.subscriptions.subscribe("t", "slow", start="earliest")
    await broker.subscriptions.subscribe("t", "fast", start="earliest")
    await broker.topics.publish("t", [b"x"] * 5)
    await connection.execute("select nuncius.confirm('t', 'fast', 4)")
    partition = slow.topic.partition_ids[0]
    await connection.execute(
        "select nuncius.fail_many(array[$1::int], array[$2::int], '{2}', '{too heavy}', 60, 10)",
        slow.subscription_id,
        partition,
    )
    page = await facts.subscriptions.page(Wish("lag", descending=True))
    first, second = page.rows
    assert (page.total, first.subscriber, first.lag, second.lag) == (2, "slow", 5, 1)
    assert (first.failures, first.attempts, first.reason) == (1, 1, "too heavy")
    assert (first.positions, first.nexts, first.is_durable, first.members) == ((0,), (5,), True, 0)
    assert first.confirmed_at is None
    assert second.confirmed_at is not None
    (failure,) = await facts.subscriptions.awaiting()
    assert (failure.destination, failure.id, failure.attempts) == ("/topic/t", 2, 1)
    assert [each.subscriber for each in (await facts.subscriptions.page(Wish(search="fast"))).rows] == [
        "fast"
    ]


async def test_clients_and_actors(broker: Broker, facts: Facts, connection: Connection) -> None:
    """Clients by name; producers and consumers with their topic and lag, those silent longest first."""
    await broker.clients.register("zoe", 2)
    await broker.clients.register("ann")
    page = await facts.clients.page()
    assert [(each.name, each.is_read_only) for each in page.rows] == [("ann", False), ("zoe", True)]
    assert [each.name for each in (await facts.clients.page(Wish("id"))).rows] == ["zoe", "ann"]
    producer = await broker.actors.register_producer("t")
    consumer = await broker.actors.register_consumer("t")
    await broker.topics.publish("t", [b"x", b"y"])
    await broker.actors.flush()
    await connection.execute(
        "update nuncius.activity set last_active = now() - interval '1 h' where kind = 'consumer'"
    )
    actors = await facts.clients.actors()
    assert [(each.kind, each.actor_id, each.topic, each.lag, each.is_active) for each in actors.rows] == [
        ("consumer", consumer, "t", 2, False),
        ("producer", producer.producer_id, "t", None, True),
    ]
    assert (await facts.clients.actors(only_inactive=True)).total == 1
    assert (await facts.clients.actors(Wish("topic", search="none"))).total == 0


async def test_cluster(broker: Broker, facts: Facts, connection: Connection) -> None:
    """Nodes, who serves which partition, and the ring with each place's share of the keys."""
    assert await facts.cluster.ring() is None
    await connection.execute("select nuncius.enter_node('h', 1, 2, '{broker}', 1)")
    (node,) = await facts.cluster.nodes()
    assert (node.host, node.roles, node.is_alive, node.partitions) == ("h", ("broker",), True, 0)
    assert await facts.cluster.placement() == ()
    await broker.topics.create("t")
    await connection.execute("insert into nuncius.assignments select partition_id, 1 from nuncius.partitions")
    (placed,) = await facts.cluster.placement()
    assert (placed.topic, placed.partition, placed.broker_id) == ("t", 1, 1)
    note = '{"version": 3, "places": [[3221225472, "b"], [1073741824, "a"]]}'
    await connection.execute("insert into nuncius.ring_notes values ('ring', $1)", note)
    ring = await facts.cluster.ring()
    assert ring is not None
    assert [(each.place, each.node, each.share) for each in ring.places] == [
        (1073741824, "a", 0.5),
        (3221225472, "b", 0.5),
    ]
    assert (ring.version, ring.keys) == (3, 0)
    one = '{"version": 1, "places": [[7, "a"]]}'
    await connection.execute("update nuncius.ring_notes set note = $1", one)
    ring = await facts.cluster.ring()
    assert ring is not None
    assert ring.places[0].share == 1.0


async def test_pipelines(facts: Facts, connection: Connection) -> None:
    """Runs of jobs and the last of each; one whose process is gone was interrupted."""
    await connection.execute(
        "insert into nuncius.pipeline_runs (job_name, settings, state, rows_read, summary, error) values"
        " ('archive', '{}', 'done', 7, '{\"report\": \"/r.html\"}', null),"
        " ('archive', '{\"topic\": \"t\"}', 'failed', 0, null, 'no room'),"
        " ('trends', '{}', 'running', 0, null, null)"
    )
    page = await facts.pipelines.runs()
    assert [(each.job, each.state) for each in page.rows] == [
        ("trends", "interrupted"),
        ("archive", "failed"),
        ("archive", "done"),
    ]
    assert (page.total, page.rows[2].report, page.rows[1].report, page.rows[1].error) == (
        3,
        "/r.html",
        None,
        "no room",
    )
    assert (await facts.pipelines.runs(Wish("read", descending=True, search="arch"))).rows[0].rows_read == 7
    archive, trends = await facts.pipelines.jobs()
    assert (archive.job, archive.runs, archive.failed, archive.last.state) == ("archive", 2, 1, "failed")
    assert trends.runs == 1


async def test_store(broker: Broker, facts: Facts, other: Connection, server: object) -> None:
    """Sizes, who holds a transaction open, and plain sentences on what to do."""
    del server
    await broker.topics.publish("t", [b"x"])
    transaction = other.transaction()
    await transaction.start()
    await other.execute("select 1 from nuncius.topics")
    store = await facts.store()
    assert store.bytes > 0
    assert "entries" in {table.name for table in store.tables}
    assert other.get_server_pid() in {each.pid for each in store.transactions}
    await transaction.rollback()


async def test_overview_and_alarms(broker: Broker, facts: Facts) -> None:
    """One look at everything."""
    await broker.topics.publish("t", [b"x"] * 3)
    await broker.subscriptions.subscribe("t", "s", start="earliest")
    queue = await broker.queues.create("dead/q")
    await put(broker, queue.queue_id, Letter(b"x"))
    overview = await facts.overview()
    assert (overview.queues, overview.messages, overview.topics, overview.entries) == (1, 1, 1, 3)
    assert (overview.subscriptions, overview.lag, overview.dead_letters) == (1, 3, 1)
    assert "1 dead-lettered message" in " ".join(each.detail for each in await facts.alarms())


def test_problems_of_an_overview() -> None:
    """Each thing that is wrong has a detail and an advice; a broker in order has no problem."""
    now = datetime.now(UTC)
    assert problems(Overview(1, 1, 1, 1, 1, 100_000, 1, 0, 0, 2, 2, 0, 1, now).findings()) == ()
    found = problems(Overview(1, 1, 1, 1, 1, 100_001, 1, 3, 4, 2, 1, 5, 1, now).findings())
    assert len(found) == 5
    assert all(each.state is Severity.WARN and each.detail and each.advice for each in found)


async def test_one_judgement_of_a_broker(facts: Facts, broker: Broker, connection: Connection) -> None:
    """A broker is in the same state among the actors and among the nodes: alive, unreachable as soon as it is
    silent, and forgotten when it has ended."""
    await connection.execute("select nuncius.enter_node('h', 1, 2, '{broker}', 1)")
    await broker.actors.flush()

    async def states() -> tuple[list[str], list[str], int]:
        actors = (await facts.clients.actors()).rows
        return (
            [each.state for each in actors],
            [each.state for each in await facts.cluster.nodes()],
            (await facts.overview()).inactive,
        )

    assert await states() == (["alive"], ["alive"], 0)
    await connection.execute("update nuncius.nodes set last_heard = now() - interval '6 seconds'")
    assert await states() == (["unreachable"], ["unreachable"], 1)
    await connection.execute("update nuncius.nodes set holder = 4711")  # whose lock is free
    assert await states() == ([], [], 0)


async def test_what_awaits_redelivery_is_counted_once(
    facts: Facts, broker: Broker, connection: Connection
) -> None:
    """The overview counts what the list shows."""
    queue = await broker.queues.create("q")
    await put(broker, queue.queue_id, Letter(b"x"), Letter(b"y"))
    await connection.execute(
        "select nuncius.lease_many(7, 1, array[$1::int], array[0], array[0], array[0], array[0::smallint],"
        " array[2])",
        queue.queue_id,
    )
    leases = [row[0] for row in await connection.fetch("select lease_id from nuncius.leases order by 1")]
    assert len(leases) == 2
    await connection.execute("select nuncius.release_many($1, array['no'], 60, 10)", leases[:1])
    assert len(await facts.subscriptions.awaiting()) == (await facts.overview()).failures == 1
