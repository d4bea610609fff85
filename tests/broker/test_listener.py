"""Nodes on one database hear of each other's messages, and of what applications do by SQL."""

import asyncio

import pytest

from broker.inside import bodies, put, queue, readers, start, until_nodes, until_waiting_for
from nuncius.broker import Broker
from nuncius.broker.background import listener
from nuncius.store.driver import Connection
from racing import terminate, until


async def test_nodes_know_of_each_other(broker: Broker, dsn: str) -> None:
    """A node that comes is noticed by the others, and so is one that goes."""
    await until_nodes(1, broker)
    async with Broker(dsn) as second:
        await until_nodes(2, broker, second)
        async with Broker(dsn) as third:
            await until_nodes(3, broker, second, third)


async def test_an_onlooker(broker: Broker, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who only looks on is no node, so nobody sends news for it; what it puts wakes the nodes all the same,
    and it finds out by itself what has changed."""
    jobs = await queue(broker)
    taking = start(broker.queues.take(jobs, wait=60))
    await until_waiting_for(broker, jobs)
    monkeypatch.setattr(listener, "LOOK_SECONDS", 0.01)
    async with Broker(dsn, onlooker=True) as onlooker:
        await put(onlooker, jobs, b"x")
        async with asyncio.timeout(60):
            assert bodies(await taking) == [b"x"]
        catalogue = onlooker.catalogue
        await until(lambda: onlooker.catalogue > catalogue)
        async with Broker(dsn) as second:
            await until_nodes(2, broker, second)


async def test_a_put_at_one_node_wakes_a_take_at_another(broker: Broker, second: Broker) -> None:
    """A take that waits at one node gets what is put at another."""
    await until_nodes(2, broker, second)
    jobs = await queue(broker)
    taking = start(second.queues.take(jobs, wait=60))
    await until_waiting_for(second, jobs)
    await put(broker, jobs, b"x")
    async with asyncio.timeout(60):
        assert bodies(await taking) == [b"x"]


async def test_two_nodes_share_a_queue(broker: Broker, second: Broker) -> None:
    """Readers at two nodes get every message once between them."""
    await until_nodes(2, broker, second)
    jobs = await queue(broker)
    got: list[bytes] = []

    async def read(node: Broker) -> None:
        while len(got) < 100:
            got.extend(bodies(await node.queues.take(jobs, wait=0.2)))

    async with asyncio.timeout(60):
        reading = [start(read(node)) for node in (broker, second) for _ in range(3)]
        for n in range(100):
            await put((broker, second)[n % 2], jobs, b"%d" % n)
        await asyncio.gather(*reading)
    assert sorted(map(int, got)) == list(range(100))


async def test_a_publish_at_one_node_reaches_readers_at_another(broker: Broker, second: Broker) -> None:
    """A subscription that is read at one node gets what is published at another."""
    await until_nodes(2, broker, second)
    sue = await second.subscriptions.subscribe("news", "sue")
    reading = start((await second.subscriptions.cursor(sue)).next(10))
    await until(lambda: readers(second) == 1)
    await broker.topics.publish("news", [b"x"])
    async with asyncio.timeout(60):
        entries = (await reading).entries
    assert entries.bodies == [b"x"]


async def test_what_applications_do_by_sql_is_heard(broker: Broker, connection: Connection) -> None:
    """A message put, or an entry published, in an application's transaction wakes readers at its commit."""
    jobs = await queue(broker)
    sue = await broker.subscriptions.subscribe("news", "sue")
    taking = start(broker.queues.take(jobs, wait=60))
    reading = start((await broker.subscriptions.cursor(sue)).next(10))
    await until_waiting_for(broker, jobs)
    await until(lambda: readers(broker) == 1)
    async with connection.transaction():
        await connection.execute("select nuncius.put_message($1, 0, 0, 0, 5, 'job')", jobs)
        await connection.execute("select nuncius.publish('news', 'entry')")
    async with asyncio.timeout(60):
        assert bodies(await taking) == [b"job"]
        assert (await reading).entries.bodies == [b"entry"]


async def test_what_workers_give_back_by_sql_is_heard(broker: Broker, connection: Connection) -> None:
    """A message that a worker gives back by SQL wakes a reader at a node, and so does one that is overdue."""
    jobs = await queue(broker)
    for seconds, give_back in (
        (60, "release('jobs', array[$1::bigint])"),
        (0, "lease('jobs', count => least(0, $1))"),
    ):
        await put(broker, jobs, b"x")
        leased = await connection.fetchval("select lease_id from nuncius.lease('jobs', 1, $1)", seconds)
        taking = start(broker.queues.take(jobs, wait=60))
        await until_waiting_for(broker, jobs)
        await connection.execute(f"select from nuncius.{give_back}", leased)
        async with asyncio.timeout(60):
            assert bodies(await taking) == [b"x"]


async def test_changes_of_the_catalogue_are_heard(broker: Broker, second: Broker) -> None:
    """A queue or topic that is deleted and made again elsewhere is another one here, too."""
    old = await queue(broker)
    await broker.topics.publish("news", [b"old"])
    assert (await second.queues.names.find("jobs")).queue_id == old
    await second.topics.names.find("news")
    await broker.queues.delete(old)
    new = await queue(broker)
    await broker.topics.delete("news")

    async def forgotten() -> bool:
        return second.topics.names.known("news") is None and (
            (await second.queues.names.find("jobs")).queue_id == new
        )

    await until(forgotten)


async def test_garbage_is_ignored(broker: Broker, connection: Connection) -> None:
    """Whatever is sent on the channel, the node goes on listening."""
    jobs = await queue(broker)
    taking = start(broker.queues.take(jobs, wait=60))
    await until_waiting_for(broker, jobs)
    for payload in ("", " ", "t", "q-1", "tx", "q99999999999999999999", "†", "x" * 7000, "c c", "n"):
        await connection.execute("select pg_notify('nuncius', $1)", payload)
    await connection.execute("select nuncius.put_message($1, 0, 0, 0, 5, 'job')", jobs)
    async with asyncio.timeout(60):
        assert bodies(await taking) == [b"job"]


async def test_look_everywhere(broker: Broker, connection: Connection) -> None:
    """The word for "anything may have come" makes everybody look."""
    jobs = await queue(broker)
    taking = start(broker.queues.take(jobs, wait=60))
    await until_waiting_for(broker, jobs)
    await connection.execute("set session_replication_role = replica")
    await connection.execute(
        "insert into nuncius.messages (queue_id, priority, message) values ($1, 5, 'x')", jobs
    )
    assert not taking.done()
    await connection.execute("select pg_notify('nuncius', '*')")
    async with asyncio.timeout(60):
        assert bodies(await taking) == [b"x"]


async def test_listens_again(dsn: str, connection: Connection, observer: Connection) -> None:
    """A node whose listening connection is killed listens again, and catches up with what it missed."""
    async with Broker(dsn) as broker:
        jobs = await queue(broker)
        taking = start(broker.queues.take(jobs, wait=60))
        await until_waiting_for(broker, jobs)
        assert await terminate(observer, "nuncius listen") == 1
        await connection.execute("select nuncius.put_message($1, 0, 0, 0, 5, 'missed')", jobs)
        async with asyncio.timeout(60):
            assert bodies(await taking) == [b"missed"]

        async def listening() -> bool:
            locks: int = await observer.fetchval(
                "select count(*) from pg_locks where classid = 78007 and granted"
                " and database = (select oid from pg_database where datname = current_database())"
            )
            return locks == 1

        await until(listening)


async def test_the_safety_net(dsn: str, connection: Connection) -> None:
    """What no notification told of is found by the slow look."""
    async with Broker(dsn) as broker:
        jobs = await queue(broker)
        taking = start(broker.queues.take(jobs, wait=60))
        await until_waiting_for(broker, jobs)
        await connection.execute(
            "insert into nuncius.messages (queue_id, priority, message) values ($1, 5, 'x')", jobs
        )
        async with asyncio.timeout(60):
            assert bodies(await taking) == [b"x"]


async def test_announcing_survives_a_killed_connection(
    broker: Broker, second: Broker, observer: Connection
) -> None:
    """A node whose announcing connection is killed announces again."""
    await until_nodes(2, broker, second)
    jobs = await queue(broker)

    async def round_trip() -> None:
        taking = start(second.queues.take(jobs, wait=60))
        await until_waiting_for(second, jobs)
        await put(broker, jobs, b"x")
        async with asyncio.timeout(60):
            assert bodies(await taking) == [b"x"]

    await round_trip()
    assert await terminate(observer, "nuncius announce") >= 1
    await until(lambda: gone(observer))
    await round_trip()


async def gone(observer: Connection) -> bool:
    left: int = await observer.fetchval(
        "select count(*) from pg_stat_activity where application_name = 'nuncius announce'"
        " and datname = current_database()"
    )
    return left == 0


async def test_a_fault_does_not_make_deaf(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong in a look at everything, the node looks again, and its log says what it was."""
    monkeypatch.setattr(listener, "LOOK_SECONDS", 0.01)
    looks: list[int | None] = []

    def look(queue_id: int | None) -> None:
        looks.append(queue_id)
        if len(looks) == 1:
            raise ZeroDivisionError

    monkeypatch.setattr(broker._listener, "on_queue", look)  # noqa: SLF001
    await until(lambda: len(looks) > 1)
    assert "ZeroDivisionError" in caplog.text
