"""The storage layer of one node: every status, any bytes, and who may own a store."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import asyncpg
import pytest

from cluster.lease_time import ManualClock
from cluster.storage_world import Network, node, opened
from fix_store import let_in
from nuncius.broker import Broker
from nuncius.ring import owner as storage_owner
from nuncius.ring import ownership as storage_ownership
from nuncius.ring import ring
from nuncius.ring.ownership import OwnedByAnother, Ownership
from nuncius.ring.peers import FoundKey
from nuncius.ring.settings import RingSettings
from nuncius.ring.storage import KeyRefused, KeyStatus, Post
from nuncius.ring.storage_node import StorageNode
from nuncius.ring.storage_ring import RingStorage
from nuncius.store.calls.keys import ReadCall
from nuncius.store.driver import Connection
from nuncius.store.errors import StoreError, StoreUnavailable
from nuncius.store.store import Store
from racing import terminate, until

ALONE = RingSettings(7)


@pytest.fixture
def dsn(dsns: list[str]) -> str:
    """One of the databases that tests of rings share."""
    return dsns[0]


@pytest.fixture
async def storage(dsn: str) -> AsyncIterator[RingStorage]:
    """A node that is a ring of its own."""
    async with node(Network(), dsn, "n0", ALONE) as made:
        await made.enter("n0")
        yield made.storage


@pytest.fixture(params=["alone", "shared"])
async def either(dsn: str, request: pytest.FixtureRequest) -> AsyncIterator[RingStorage]:
    """A node of a ring, or one that shares its store."""
    settings = ALONE if request.param == "alone" else None
    async with opened(dsn) as store:
        made = StorageNode(store, Network().connect, settings)
        await made.open()
        await made.enter("n0")
        yield made.storage
        await made.close()


async def test_values(either: RingStorage) -> None:
    """What was put last is what is got; a key that was never put is not there."""
    assert await either.get("dga:name") is None
    await either.put("dga:name", "David")
    await either.put("dga:name", "Dave")
    await either.put("dga:empty", "")
    assert await either.get("dga:name") == "Dave"
    assert await either.get_many(["dga:empty", "nobody", "dga:name", "dga:name"]) == [
        "",
        None,
        "Dave",
        "Dave",
    ]
    assert await either.get_many([]) == []


async def test_lists(either: RingStorage) -> None:
    """An item is in a list once, in the order of appending; what is not there cannot be removed."""
    assert await either.find_lists(["dga:l"]) == [None]
    assert await either.get_list("dga:l") == []
    assert await either.remove("dga:l", "a") is KeyStatus.KEY_NOT_FOUND
    assert await either.append("dga:l", "b") is KeyStatus.OK
    assert await either.append("dga:l", "a") is KeyStatus.OK
    assert await either.append("dga:l", "b") is KeyStatus.ITEM_EXISTS
    assert await either.get_list("dga:l") == ["b", "a"]
    assert await either.remove("dga:l", "b") is KeyStatus.OK
    assert await either.remove("dga:l", "b") is KeyStatus.ITEM_NOT_FOUND
    assert await either.append("dga:l", "b") is KeyStatus.OK
    assert await either.get_lists(["dga:l", "none"]) == [["a", "b"], []]
    for item in ("a", "b"):
        assert await either.remove("dga:l", item) is KeyStatus.OK
    assert await either.find_lists(["dga:l"]) == [[]]
    assert await either.get("dga:l") is None


async def test_numbers_that_rise(either: RingStorage) -> None:
    """A number is put unless one as large is there, whatever the order in which they come."""
    for number, expected in [(9, "9"), (10, "10"), (9, "10"), (10, "10"), (1 << 40, f"{1 << 40}")]:
        await either.raise_to("k", number)
        assert await either.get("k") == expected
    await either.put("k", "7")
    await asyncio.gather(*(either.raise_to("k", n) for n in (12, 30, 8, 21)))
    assert await either.get("k") == "30"


async def test_an_answer_is_the_callers_own(storage: RingStorage) -> None:
    """What a caller does with a list that it got is its own affair."""
    await storage.append("dga:l", "a")
    for _ in range(3):
        (await storage.get_list("dga:l")).append("mine")
        (await storage.get_lists(["dga:l"]))[0].append("mine")
    assert await storage.get_list("dga:l") == ["a"]


@pytest.mark.parametrize("text", ["", "\0", "a\0b:c", "\udcff\udc80\x01", "ß:\N{SNOWMAN}", ":", "x" * 900])
async def test_any_bytes(either: RingStorage, text: str) -> None:
    """Keys, values and items are any bytes."""
    await either.put(text, text)
    assert await either.append(text, text) is KeyStatus.OK
    assert await either.append(text, text) is KeyStatus.ITEM_EXISTS
    assert (await either.get(text), await either.get_list(text)) == (text, [text])
    await either.put_and_publish(Post(f"{text}:p", text, f"{text}:l", text, b"\xff"))
    assert await either.get(f"{text}:p") == text


async def test_large_items(either: RingStorage) -> None:
    """Values and items may be large, and are told apart to their last byte."""
    large = "x" * 1_000_000
    await either.put("k", large)
    assert [await either.append("l", large + end) for end in ("a", "b", "a")] == [0, 0, 4]
    assert await either.get("k") == large
    assert await either.get_list("l") == [large + "a", large + "b"]


async def test_limits(storage: RingStorage) -> None:
    """What is too large is refused, and says so."""
    with pytest.raises(KeyRefused, match="1024 bytes"):
        await storage.put("k" * 1025, "v")
    with pytest.raises(KeyRefused, match="value"):
        await storage.put("k", "v" * (storage_owner.MAX_VALUE + 1))
    with pytest.raises(KeyRefused, match="item"):
        await storage.append("k", "v" * (storage_owner.MAX_VALUE + 1))
    with pytest.raises(KeyRefused, match="colon"):
        await storage.put_and_publish(Post("a:1", "v", "b:l", "i", b""))


async def test_keys_that_cannot_be(either: RingStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a key that is too long there is nothing; nobody hashes it, counts its queries or remembers it."""

    def forbid(data: bytes) -> int:
        raise AssertionError(len(data))

    await either.put("k", "v")
    monkeypatch.setattr(ring, "fnv1", forbid)
    long = "k" * 1025
    assert await either.get(long) is None
    assert await either.get_list(long) == []
    assert await either.get_many(["k", long]) == ["v", None]
    assert await either.read_for(False, [long], [True], "somebody") == [FoundKey(None)]
    with pytest.raises(KeyRefused, match="1024 bytes"):
        await either.append(long, "v")


async def test_a_post(either: RingStorage, broker: Broker) -> None:
    """A post is a key, an item and an entry; repeated, it is nothing new."""
    for n in range(3):
        for _ in range(2):
            length = await either.put_and_publish(
                Post(f"dga:post-{n}", f"text {n}", "dga:posts", f"{n}", b"body %d" % n)
            )
            assert length == n + 1
    assert await either.get_many([f"dga:post-{n}" for n in range(3)]) == ["text 0", "text 1", "text 2"]
    assert await either.get_list("dga:posts") == ["0", "1", "2"]
    topic = await broker.topics.existing("tribbles")
    entries = await broker.topics.fetch(topic, 1, 0, 10)
    assert entries is not None
    assert list(entries.bodies) == [b"body 0", b"body 1", b"body 2"]
    assert list(entries.keys or ()) == ["dga"] * 3


async def test_posts_in_a_topic_with_partitions(either: RingStorage, broker: Broker) -> None:
    """All posts of a user are in one partition, in order, also when the topic grows or is deleted."""

    async def post(user: str, n: int) -> None:
        await either.put_and_publish(
            Post(f"{user}:post-{n}", "v", f"{user}:l", str(n), f"{user} {n}".encode())
        )

    await broker.topics.create("tribbles", 3)
    users = [f"user{n}" for n in range(20)]
    await asyncio.gather(*(post(user, n) for n in range(5) for user in users))
    topic = await broker.topics.existing("tribbles")
    seen: dict[str, list[str]] = {}
    for partition in (1, 2, 3):
        entries = await broker.topics.fetch(topic, partition, 0, 1000)
        assert entries is not None
        for body in entries.bodies:
            user, number = body.decode().split()
            seen.setdefault(user, []).append(f"{partition} {number}")
    assert set(seen) == set(users)
    assert all(len({each.split()[0] for each in mine}) == 1 for mine in seen.values())
    assert all([each.split()[1] for each in mine] == list("01234") for mine in seen.values())
    await broker.topics.delete("tribbles")
    await post("dga", 1)
    assert (await broker.topics.find(["tribbles"]))[0].partitions[0].next_offset == 1


async def test_one_commit_carries_many(storage: RingStorage, connection: Connection) -> None:
    """Changes that come while others are stored are stored together."""
    before = await connection.fetchval("select pg_current_xact_id()::text::bigint")
    await asyncio.gather(*(storage.put(f"user{n}:x", "v") for n in range(500)))
    after = await connection.fetchval("select pg_current_xact_id()::text::bigint")
    assert after - before < 50
    assert await storage.get_many([f"user{n}:x" for n in range(500)]) == ["v"] * 500


async def test_many_append_at_once(either: RingStorage) -> None:
    """Nothing is lost, and nothing is there twice."""
    answers = await asyncio.gather(*(either.append("l", f"{n % 100}") for n in range(300)))
    assert sorted(answers) == [0] * 100 + [4] * 200
    assert sorted(await either.get_list("l"), key=int) == [f"{n}" for n in range(100)]


async def test_hot_keys_are_answered_from_memory(storage: RingStorage, connection: Connection) -> None:
    """What was read is not looked up again; what is changed is, once."""
    await storage.put("k", "v")
    await storage.append("l", "a")
    assert (await storage.get("k"), await storage.get_list("l")) == ("v", ["a"])
    await connection.execute("truncate nuncius.key_values, nuncius.key_items")
    assert (await storage.get("k"), await storage.get_list("l")) == ("v", ["a"])
    await storage.put("k", "w")
    await storage.append("l", "b")
    assert (await storage.get("k"), await storage.get_list("l")) == ("w", ["b"])


async def test_what_fails_leaves_nothing_in_memory(storage: RingStorage, connection: Connection) -> None:
    """After a change that failed, the next look is at the store."""
    await storage.put("k", "v")
    await connection.execute("alter table nuncius.key_values add constraint no check (value <> 'no')")
    with pytest.raises(StoreError):
        await storage.put("k", "no")
    assert await storage.get("k") == "v"
    await connection.execute("alter table nuncius.key_values drop constraint no")
    await storage.put("k", "no")
    assert await storage.get("k") == "no"


async def test_no_lease_of_what_changes_while_others_are_looked_up(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that was in memory, and is changed before the others of the same question are found, has none."""
    async with node(Network(), dsn, "n0", ALONE) as made:
        await made.enter("n0")
        await made.storage.put("hot", "old")
        await made.storage.put("cold", "v")
        assert await made.storage.get("hot") == "old"
        held_up: list[ReadCall] = []
        with monkeypatch.context() as slow:
            slow.setattr(made.keys, "read_soon", held_up.append)
            asked = made.storage.read_for(False, ["hot", "cold"], [True, True], "somebody")
            reading = asyncio.ensure_future(asked)
            await until(lambda: held_up)
        await made.storage.put("hot", "new")
        made.keys.read_soon(held_up[0])
        assert await reading == [FoundKey("old"), FoundKey("v", 5)]


async def test_no_lease_without_a_note(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it cannot be noted that there is a lease there is none, but an answer."""

    async def fail(_: object) -> None:
        raise StoreUnavailable("away")

    async with node(Network(), dsn, "n0", ALONE) as made:
        await made.enter("n0")
        await made.storage.put("k", "v")
        with monkeypatch.context() as broken:
            broken.setattr(made.keys, "note", fail)
            found = await made.storage.read_for(False, ["k"], [True], "somebody")
            assert (found[0].value, found[0].lease_seconds) == ("v", 0)
        found = await made.storage.read_for(False, ["k"], [True], "somebody")
        assert (found[0].value, found[0].lease_seconds) == ("v", 5)


async def test_several_processes_share_a_store(dsn: str) -> None:
    """Nodes that are no ring may use one store: each sees at once what another has written."""
    async with contextlib.AsyncExitStack() as stack:
        storages = []
        for _ in range(3):
            store = await stack.enter_async_context(opened(dsn))
            each = StorageNode(store, Network().connect)
            await each.open()
            stack.push_async_callback(each.close)
            await each.enter("n0")
            storages.append(each.storage)
        for n in range(9):
            await storages[n % 3].put("k", f"{n}")
            assert [await each.get("k") for each in storages] == [f"{n}"] * 3
        answers = await asyncio.gather(*(storages[n % 3].append("l", f"{n % 50}") for n in range(300)))
        assert sorted(answers) == [0] * 50 + [4] * 250
        found = await storages[0].read_for(False, ["k"], [True], "somebody")
        assert found[0].lease_seconds == 0


async def test_one_owner_a_store(dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of a ring has its store for itself; it is not given up when the server drops the connection."""
    monkeypatch.setattr(storage_ownership, "PATIENCE", 0.2)
    lost: list[Exception] = []
    async with opened(dsn) as store, opened(dsn) as other:
        first = StorageNode(store, Network().connect, ALONE, give_up=lost.append)
        await first.open()
        for settings in (ALONE, None):
            second = StorageNode(other, Network().connect, settings)
            with pytest.raises(OwnedByAnother, match="another process"):
                await second.open()
            await second.close()
        assert await terminate(connection, "nuncius keys owner") == 1

        async def held() -> bool:
            return bool(
                await connection.fetchval(
                    "select count(*) from pg_locks join pg_stat_activity using (pid)"
                    " where locktype = 'advisory' and classid = 78013 and granted"
                    " and datname = current_database()"
                )
            )

        await until(held)
        assert lost == []
        thief = await asyncpg.connect(dsn)
        locked = asyncio.ensure_future(thief.execute("select pg_advisory_lock(78013, 0)"))
        await asyncio.sleep(0)
        await until(lambda: _waits(connection))
        assert await terminate(connection, "nuncius keys owner") == 1
        await locked
        await until(lambda: lost)
        assert isinstance(lost[0], OwnedByAnother)
        await thief.close()
        await first.close()


async def test_an_owner_without_a_store_is_patient(
    dsn: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """While the store is away the owner of its keys says so once, and has its lock again when it is back."""
    store = Store(dsn, patience=0.05)
    await store.open()
    ownership = Ownership(store, shared=False, lost=lambda error: None)
    await ownership.take()
    let_in(dsn, may=False)
    assert await terminate(connection, "nuncius keys owner") == 1
    await until(lambda: "waits for the store" in caplog.text)
    for _ in range(100):
        await asyncio.sleep(0)
    assert caplog.text.count("waits for the store") == 1
    let_in(dsn, may=True)

    async def held() -> bool:
        free: bool = await connection.fetchval("select pg_try_advisory_lock(78013, 0)")
        if free:
            await connection.execute("select pg_advisory_unlock(78013, 0)")
        return not free

    await until(held)
    await ownership.close()
    await store.close()


async def _waits(connection: Connection) -> bool:
    return bool(
        await connection.fetchval("select count(*) from pg_locks where classid = 78013 and not granted")
    )


async def test_a_new_owner_waits_for_what_the_last_one_began(dsn: str) -> None:
    """A change that is still on its way in PostgreSQL is waited for, so that memory cannot miss it."""
    straggler = await asyncpg.connect(dsn)
    transaction = straggler.transaction()
    await transaction.start()
    await straggler.execute(
        "select nuncius.write_keys('{0}', '{1}', '{\\x6b}', '{\\x76}', null, null, null, null, '')"
    )
    async with opened(dsn) as store:
        made = StorageNode(store, Network().connect, ALONE)
        opening = asyncio.ensure_future(made.open())
        await until(lambda: _waits(straggler))
        assert not opening.done()
        await transaction.commit()
        await opening
        await made.close()
        await straggler.close()


async def test_a_node_keeps_its_random_id(dsn: str) -> None:
    """An id that nobody chose is the same after a restart."""
    found = []
    for _ in range(2):
        async with node(Network(), dsn, "n0", RingSettings(), ManualClock()) as made:
            ring = await made.enter("n0")
            found.append(ring.places[0].node_id)
    assert found[0] == found[1] > 0
