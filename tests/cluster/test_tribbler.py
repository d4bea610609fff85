"""Tribbler's seven calls: every status, order, bounds, and few calls to the store."""

import asyncio
import json
import random
from collections.abc import AsyncIterator

import pytest

from cluster.tribbler_world import World, world
from nuncius.ring.storage import KeyRefused, Post
from nuncius.ring.tribbler.model import (
    CHUNK,
    LIMIT,
    StoredTribble,
    TribbleStatus,
    chunk_key,
    decode_tribble,
    encode_tribble,
    item,
    post_key,
    posts_key,
)
from nuncius.ring.tribbler.posting import PROCESSES, Posting

OK, NO_USER, NO_TARGET, EXISTS = TribbleStatus


@pytest.fixture
async def ring(dsn: str, away: str) -> AsyncIterator[World]:
    """Two nodes with a store each."""
    async with world([dsn, away]) as made:
        yield made


async def users(ring: World, *names: str) -> None:
    for status in await asyncio.gather(*map(ring.first.tribbler.create_user, names)):
        assert status is OK


async def test_users(ring: World) -> None:
    """A user is made once, whoever else tries at the same time."""
    made = await asyncio.gather(
        *(node.tribbler.create_user("dga") for node in ring.nodes.values() for _ in "123")
    )
    assert sorted(made) == [OK] + 5 * [EXISTS]
    assert await ring.first.tribbler.create_user("dga") is EXISTS


async def test_statuses_without_a_user(ring: World) -> None:
    """Nobody can do anything before being made."""
    app = ring.first.tribbler
    await users(ring, "dga")
    assert await app.add_subscription("nobody", "dga") is NO_USER
    assert await app.remove_subscription("nobody", "dga") is NO_USER
    assert await app.add_subscription("nobody", "nobody else") is NO_USER
    assert await app.subscriptions("nobody") == (NO_USER, [])
    assert await app.post("nobody", "hello") is NO_USER
    assert await app.tribbles("nobody") == (NO_USER, [])
    assert await app.tribbles_by_subscription("nobody") == (NO_USER, [])
    # And asking has not made them.
    assert await app.create_user("nobody") is OK


async def test_subscriptions(ring: World) -> None:
    """Only users who exist are followed, once, until they are not; the list is in the order of following."""
    app = ring.first.tribbler
    await users(ring, "dga", "bryant", "imoraru")
    assert await app.add_subscription("dga", "nobody") is NO_TARGET
    assert await app.remove_subscription("dga", "nobody") is NO_TARGET
    assert await app.remove_subscription("dga", "bryant") is NO_TARGET
    assert await app.subscriptions("dga") == (OK, [])
    assert await app.add_subscription("dga", "imoraru") is OK
    assert await app.add_subscription("dga", "bryant") is OK
    assert await app.add_subscription("dga", "bryant") is EXISTS
    assert await app.subscriptions("dga") == (OK, ["imoraru", "bryant"])
    assert await app.remove_subscription("dga", "imoraru") is OK
    assert await app.remove_subscription("dga", "imoraru") is NO_TARGET
    assert await app.subscriptions("dga") == (OK, ["bryant"])
    assert await app.add_subscription("dga", "imoraru") is OK


async def test_tribbles(ring: World) -> None:
    """A user's tribbles come newest first, at most 100 of them, with their times."""
    app = ring.first.tribbler
    await users(ring, "dga")
    assert await app.tribbles("dga") == (OK, [])
    for n in range(LIMIT + 5):
        assert await app.post("dga", f"number {n}") is OK
        if n in (0, CHUNK - 1, CHUNK):
            _, tribbles = await app.tribbles("dga")
            assert len(tribbles) == n + 1
    _, tribbles = await app.tribbles("dga")
    assert [each.contents for each in tribbles] == [f"number {n}" for n in range(LIMIT + 4, 4, -1)]
    assert {each.user for each in tribbles} == {"dga"}
    times = [each.posted for each in tribbles]
    assert times == sorted(set(times), reverse=True)


async def test_a_feed(ring: World) -> None:
    """A feed has the tribbles of all who are followed, in one order, and not one's own."""
    app = ring.first.tribbler
    await users(ring, "reader", "a", "b", "silent", "stranger")
    assert await app.tribbles_by_subscription("reader") == (OK, [])
    for target in ("a", "b", "silent"):
        await app.add_subscription("reader", target)
    assert await app.tribbles_by_subscription("reader") == (OK, [])
    for n, user in enumerate(["a", "b", "reader", "a", "stranger", "b"]):
        await app.post(user, f"{n} of {user}")
    _, feed = await app.tribbles_by_subscription("reader")
    assert [each.contents for each in feed] == ["5 of b", "3 of a", "1 of b", "0 of a"]
    await app.remove_subscription("reader", "b")
    _, feed = await app.tribbles_by_subscription("reader")
    assert [each.contents for each in feed] == ["3 of a", "0 of a"]


async def test_any_text(ring: World) -> None:
    """Names and tribbles may be anything; users whose names look like keys do not meet."""
    app = ring.first.tribbler
    names = ["a", "a:b", "a:user", "a:posts-0", ":", "é\n\N{SNOWMAN}"]
    contents = ["", '{"user": "x"}', "\0", "\udcff\udc00 no text", "x" * 100_000]
    await users(ring, *names)
    for name in names:
        for text in contents:
            assert await app.post(name, text) is OK
    for name in names:
        _, tribbles = await app.tribbles(name)
        assert [each.contents for each in tribbles] == contents[::-1]
        assert {each.user for each in tribbles} == {name}


async def test_long_names(ring: World) -> None:
    """Whoever can be made can do everything; a name that is too long for that is refused."""
    app = ring.first.tribbler
    longest = "\N{SNOWMAN}" * 333 + "x"
    assert await app.create_user(longest) is OK
    assert await app.add_subscription(longest, longest) is OK
    assert await app.post(longest, "hello") is OK
    _, feed = await app.tribbles_by_subscription(longest)
    assert [each.contents for each in feed] == ["hello"]
    with pytest.raises(KeyRefused, match="1000 bytes"):
        await app.create_user(longest + "x")


async def test_freshness(ring: World) -> None:
    """What was posted before a feed is asked for is in it, whichever nodes are asked."""
    one, other = (node.tribbler for node in ring.nodes.values())
    await users(ring, "reader", "a", "b")
    for target in ("a", "b"):
        await one.add_subscription("reader", target)
    for n in range(40):
        # Often enough that whoever is asked keeps keys of the other.
        writer, reader = (one, other) if n % 2 else (other, one)
        await writer.post("ab"[n % 2], str(n))
        _, feed = await reader.tribbles_by_subscription("reader")
        assert [each.contents for each in feed] == [str(m) for m in range(n, -1, -1)]


async def test_posting_at_once(ring: World) -> None:
    """Tribbles posted at the same time from all nodes are all there, each with a time of its own."""
    await users(ring, "busy")
    nodes = list(ring.nodes.values())
    await asyncio.gather(*(nodes[n % 2].tribbler.post("busy", str(n)) for n in range(150)))
    chunk = await ring.first.storage.get(chunk_key("busy"))
    lists = await ring.first.storage.get_lists([posts_key("busy", n) for n in range(int(chunk or 0) + 1)])
    ids = [each for ids in lists for each in ids]
    assert len(set(ids)) == len(ids) == 150
    assert ids == sorted(ids)
    values = await ring.first.storage.get_many([post_key("busy", int(each, 16)) for each in ids])
    assert {decode_tribble(value or "").contents for value in values} == {str(n) for n in range(150)}


async def test_every_post_is_an_entry(ring: World) -> None:
    """Each tribble is an entry of its owner's topic, with its user as the key and JSON as the body."""
    await users(ring, "dga", "bryant")
    for user in ("dga", "bryant"):
        await ring.first.tribbler.post(user, f"by {user}")
    seen = {}
    for node in ring.nodes.values():
        for row in await node.store.query("select key, body from nuncius.entries order by entry_offset"):
            body = json.loads(row["body"])
            assert body["user"] == row["key"]
            seen[row["key"]] = body
    _, (tribble,) = await ring.first.tribbler.tribbles("dga")
    assert seen["dga"] == {"user": "dga", "posted": tribble.posted, "contents": "by dga"}
    assert seen.keys() == {"dga", "bryant"}


async def test_a_clock_that_goes_back(ring: World) -> None:
    """Times of a user's tribbles rise, whatever the clock does and whoever posted before."""
    await users(ring, "dga")
    storage = ring.first.storage
    times = iter([1000, 1000, 500, 2000])
    posting = Posting(storage, lambda: next(times))
    assert [await posting.post("dga", "x") for _ in range(3)] == [1000, 1001, 1002]
    assert await Posting(storage, lambda: 7).post("dga", "x") == 1003
    assert await posting.post("dga", "x") == 2000


async def test_a_list_that_was_only_announced(ring: World) -> None:
    """A node that died between announcing a list and posting into it has not hidden anything."""
    app = ring.first.tribbler
    await users(ring, "dga")
    for n in range(CHUNK):
        await app.post("dga", str(n))
    await ring.first.storage.put(chunk_key("dga"), "1")
    _, tribbles = await app.tribbles("dga")
    assert len(tribbles) == CHUNK
    later = await Posting(ring.first.storage, lambda: 0).post("dga", "later")
    assert later == tribbles[0].posted + 1
    assert (await app.tribbles("dga"))[1][0].contents == "later"


async def test_processes_on_one_store(ring: World) -> None:
    """Processes that own the same keys give out different times, and go by what the others have stored."""
    await users(ring, "dga")
    storage = ring.first.storage
    one, other = (Posting(storage, lambda: 5 * PROCESSES, shared=True) for _ in "12")
    times = [await (one if n % 2 else other).post("dga", str(n)) for n in range(CHUNK + 3)]
    assert times == sorted(set(times))
    assert len({time % PROCESSES for time in times}) == 1
    assert await storage.get(chunk_key("dga")) == "1"
    assert len(await storage.get_list(posts_key("dga", 1))) == 3


async def test_a_process_that_is_slow_to_announce(ring: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that begins a new list late, when others on its store are further, hides nothing."""
    app = ring.first.tribbler
    await users(ring, "dga")
    storage = ring.first.storage
    slow, fast = (Posting(storage, shared=True) for _ in "12")
    for n in range(CHUNK):
        await fast.post("dga", str(n))
    raise_to = storage.raise_to

    async def late(key: str, number: int) -> None:
        monkeypatch.undo()
        for n in range(2 * CHUNK):
            await fast.post("dga", f"later {n}")
        await raise_to(key, number)

    monkeypatch.setattr(storage, "raise_to", late)
    await slow.post("dga", "at last")
    _, tribbles = await app.tribbles("dga")
    assert len(tribbles) == 3 * CHUNK + 1


@pytest.mark.parametrize("seed", range(3))
async def test_feeds_of_many(ring: World, seed: int) -> None:
    """Whoever is followed, and however much each has posted, a feed is exactly the newest of all."""
    choice = random.Random(seed)
    names = [f"user-{n}" for n in range(80)]
    posted = await fill(ring, {name: int(choice.paretovariate(0.6)) % 400 for name in names}, choice)
    await users(ring, "reader")
    app = ring.first.tribbler
    followed: list[str] = []
    for name in choice.sample(names, 60):
        followed.append(name)
        await app.add_subscription("reader", name)
        if len(followed) % 6 == 0:
            _, feed = await app.tribbles_by_subscription("reader")
            every = sorted((-time, each) for each in followed for time in posted[each])
            assert [(-each.posted, each.user) for each in feed] == every[:LIMIT]


async def test_few_calls(ring: World) -> None:
    """A feed of many users takes a few calls of the storage layer, and reads only what it may need."""
    names = [f"user-{n}" for n in range(300)]
    await fill(ring, dict.fromkeys(names, 20), random.Random(1))
    await users(ring, "reader", "fan")
    node = ring.first
    await node.storage.append("fan:subscriptions", "user-1")
    await asyncio.gather(*(node.storage.append("reader:subscriptions", name) for name in names))
    calls = node.storage.calls
    calls.clear()
    _, feed = await node.tribbler.tribbles_by_subscription("reader")
    assert len(feed) == LIMIT
    assert sum(calls.values()) - calls["keys"] <= 6
    assert calls["keys"] < 4 * len(names)


async def test_a_long_history(ring: World) -> None:
    """A user with very many tribbles is read with as many calls and keys as one with few."""
    await fill(ring, {"young": LIMIT, "old": 5000}, random.Random(1))
    calls = ring.first.storage.calls
    costs = []
    for user in ("young", "old"):
        calls.clear()
        _, tribbles = await ring.first.tribbler.tribbles(user)
        assert len(tribbles) == LIMIT
        costs.append((sum(calls.values()) - calls["keys"], calls["keys"]))
    assert costs[1][0] <= costs[0][0]
    assert costs[1][1] <= costs[0][1] + 1


async def fill(ring: World, amounts: dict[str, int], choice: random.Random) -> dict[str, list[int]]:
    """New users with posts at random times, some at the same; answers with the times."""
    await users(ring, *amounts)
    posted: dict[str, list[int]] = {}
    storage = ring.first.ring_storage
    work = []
    for user, amount in amounts.items():
        posted[user] = times = sorted(choice.sample(range(1, 10_000), amount))
        for n, time in enumerate(times):
            value = encode_tribble(StoredTribble(user, time, str(n)))
            post = Post(post_key(user, time), value.decode(), posts_key(user, n // CHUNK), item(time), value)
            work.append(storage.put_and_publish(post))
        if times:
            work.append(storage.put(chunk_key(user), str((amount - 1) // CHUNK)))  # type: ignore[arg-type]
    await asyncio.gather(*work)
    return posted
