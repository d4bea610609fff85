"""Timelines in the server: used when they lead to the feed exactly, with a few reads, and left aside else."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from cluster.tribbler_world import World, world
from nuncius.broker import Broker
from nuncius.ring.storage import OwnerSilent
from nuncius.ring.tribbler import recent as tribbler_recent
from nuncius.ring.tribbler.model import LIMIT, timeline_key
from nuncius.ring.tribbler.recent import Posts, Recent
from nuncius.ring.tribbler.timelines import PROGRESS, Timeline, TimelineProgress

AUTHORS = [f"author-{n}" for n in range(30)]


@pytest.fixture
async def ring(dsn: str) -> AsyncIterator[World]:
    """One node that uses timelines for those who follow at least ten, with a reader of thirty."""
    async with world([dsn], timelines_from=10) as made:
        app = made.first.tribbler
        await asyncio.gather(*map(app.create_user, [*AUTHORS, "reader"]))
        for author in AUTHORS:
            await app.add_subscription("reader", author)
        yield made


async def post(ring: World, amount: int, authors: Sequence[str] = AUTHORS) -> None:
    for n in range(amount):
        await ring.first.tribbler.post(authors[n % len(authors)], str(n))


async def positions(ring: World) -> dict[str, list[int]]:
    found = await ring.first.local.recent([])
    return {found.topic: [start + count for start, count in zip(found.starts, found.counts, strict=True)]}


async def make_timeline(ring: World, *, run: int = 1, user: str = "reader") -> Timeline:
    """As the job would write it now."""
    _, followed = await ring.first.tribbler.subscriptions(user)
    feed = await merged(ring, user)
    made = Timeline(
        "lineage", run, await positions(ring), sorted(followed), [u for u, _ in feed], [t for _, t in feed]
    )
    await ring.first.ring_storage.put(timeline_key(user), msgspec.json.encode(made).decode())
    return made


async def merged(ring: World, user: str = "reader") -> list[tuple[str, int]]:
    app = ring.first.tribbler
    _, followed = await app.subscriptions(user)
    each = [(await app.tribbles(author))[1] for author in followed]
    found = sorted((-tribble.posted, tribble.user) for tribbles in each for tribble in tribbles)
    return [(author, -age) for age, author in found[:LIMIT]]


async def feed(ring: World, user: str = "reader") -> list[tuple[str, int]]:
    _, found = await ring.first.tribbler.tribbles_by_subscription(user)
    return [(each.user, each.posted) for each in found]


async def keys_read(ring: World) -> int:
    """How many keys a feed reads, besides the tribbles in it."""
    calls = ring.first.storage.calls
    calls.clear()
    found = await feed(ring)
    assert found == await merged(ring)
    calls.clear()
    assert await feed(ring) == found
    return calls["keys"] - len(found)


async def test_few_reads(ring: World) -> None:
    """A feed by way of a timeline reads a handful of keys, however many are followed; the newest is in it."""
    await post(ring, 150)
    assert await keys_read(ring) > len(AUTHORS)
    await make_timeline(ring)
    assert await keys_read(ring) == 4
    await post(ring, 7)
    assert await keys_read(ring) == 4


async def test_what_others_publish(ring: World, broker: Broker) -> None:
    """Entries of the topic that are no tribbles, by whichever door they came, do not disturb a feed."""
    await post(ring, 50)
    await make_timeline(ring)
    bodies = [b"hello", b"\xff", b"7", b"{}", b'{"user": 7, "posted": "x", "contents": 1}', b"[" * 100_000]
    never = [b'{"user": "author-1", "posted": %d, "contents": ""}' % time for time in (-1, 2**63, 10**30)]
    for body in [*bodies, *never]:
        await broker.topics.publish("tribbles", [body], keys=["author-1"])
    await post(ring, 3)
    assert await keys_read(ring) == 4


async def test_what_only_looks_like_a_tribble(ring: World, broker: Broker) -> None:
    """An entry of the topic that says that somebody has posted takes no place in a feed."""
    await post(ring, 120)
    await make_timeline(ring)
    await broker.topics.publish(
        "tribbles", [b'{"user": "author-1", "posted": %d, "contents": ""}' % (2**63 - 1)], keys=["author-1"]
    )
    assert await feed(ring) == await merged(ring)


async def test_a_topic_that_was_deleted(ring: World, broker: Broker) -> None:
    """Nothing of a feed is in the topic only: somebody may delete it, and posts make a new one."""
    await post(ring, 50)
    await make_timeline(ring)
    await post(ring, 3)
    await broker.topics.delete("tribbles")
    assert await feed(ring) == await merged(ring)
    await post(ring, 60)
    assert await feed(ring) == await merged(ring)
    await make_timeline(ring)
    await post(ring, 3)
    assert await keys_read(ring) == 4


async def test_who_follows_few(ring: World) -> None:
    """Users who follow few get a merged feed, whatever a timeline says."""
    app = ring.first.tribbler
    await app.create_user("modest")
    await app.add_subscription("modest", "author-1")
    await post(ring, 3)
    wrong = Timeline("lineage", 1, {}, ["author-1"], ["author-1"], [5])
    await ring.first.ring_storage.put(timeline_key("modest"), msgspec.json.encode(wrong).decode())
    assert await feed(ring, "modest") == await merged(ring, "modest")


async def test_following_since(ring: World) -> None:
    """Users followed since are merged in; those not followed any more are left out."""
    app = ring.first.tribbler
    await post(ring, 60)
    await app.create_user("late")
    await post(ring, 3, ["late"])
    await make_timeline(ring)
    await app.add_subscription("reader", "late")
    await app.remove_subscription("reader", "author-4")
    found = await feed(ring)
    assert {"late"} <= {author for author, _ in found}
    assert "author-4" not in {author for author, _ in found}
    assert await keys_read(ring) < len(AUTHORS)
    await app.add_subscription("reader", "author-4")
    assert await feed(ring) == await merged(ring)


async def test_a_run_that_ends_meanwhile(ring: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress stands for the timelines of its run: one that was read before it was rewritten is not taken
    for the new one."""
    storage = ring.first.storage
    await post(ring, 5)
    await make_timeline(ring, run=1)
    await post(ring, 3)
    get = storage.get

    async def get_and_run(key: str) -> str | None:
        value = await get(key)
        monkeypatch.undo()
        made = await make_timeline(ring, run=2)
        progress = TimelineProgress(made.lineage, made.run, made.at)
        await storage.put(PROGRESS, msgspec.json.encode(progress).decode())
        return value

    monkeypatch.setattr(storage, "get", get_and_run)
    assert await feed(ring) == await merged(ring)


async def test_a_full_timeline(ring: World) -> None:
    """What moves up when somebody is not followed any more is not in a full timeline: then it is not used,
    until enough is newer."""
    await post(ring, 150)
    await make_timeline(ring)
    await ring.first.tribbler.remove_subscription("reader", "author-0")
    assert await keys_read(ring) > len(AUTHORS)
    await post(ring, 10, AUTHORS[1:])
    assert await keys_read(ring) == 4


async def test_progress(ring: World) -> None:
    """Progress of the same lineage stands for a timeline that was not rewritten; any other does not."""
    await post(ring, 5)
    made = await make_timeline(ring, run=2)
    await ring.first.tribbler.create_user("stranger")
    await post(ring, 20, ["stranger"])
    later = await positions(ring)
    for progress, expected in [
        (TimelineProgress("lineage", 3, later), later),
        (TimelineProgress("lineage", 1, later), made.at),
        (TimelineProgress("another", 3, later), made.at),
        (None, made.at),
    ]:
        assert made.position(progress) == expected
    await ring.first.ring_storage.put(
        PROGRESS, msgspec.json.encode(TimelineProgress("lineage", 3, later)).decode()
    )
    await post(ring, 2)
    assert await keys_read(ring) == 4


async def test_nonsense(ring: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timeline that is none, and a node that does not answer, cost time and nothing else."""
    await post(ring, 5)
    expected = await merged(ring)
    for value in ("", "no timeline", "{}", "\udcff"):
        await ring.first.ring_storage.put(timeline_key("reader"), value)
        assert await feed(ring) == expected
    await make_timeline(ring)
    await ring.first.ring_storage.put(PROGRESS, "nonsense")
    assert await keys_read(ring) == 4

    async def silence(_: list[int] | None) -> Posts:
        raise OwnerSilent("nobody")

    monkeypatch.setattr(ring.first.local, "recent", silence)
    assert await feed(ring) == expected


async def test_too_much_is_new(ring: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """When more was posted since than a node keeps, feeds are merged."""
    monkeypatch.setattr(tribbler_recent, "WINDOW", 20)
    monkeypatch.setattr(tribbler_recent, "PORTION", 5)
    await post(ring, 5)
    await make_timeline(ring)
    await post(ring, 15)
    assert await feed(ring) == await merged(ring)
    await post(ring, 30)
    assert await keys_read(ring) > len(AUTHORS)


# What was posted lately


class Topic:
    """A node's topic, as others see it."""

    def __init__(self, *partitions: int, name: str = "store-1") -> None:
        self.name = name
        self.first = [0] * len(partitions)
        self.posts = [[(n * 1000 + m) for m in range(amount)] for n, amount in enumerate(partitions)]
        self.users = ["x"]
        """Who posts, in turn, by the time."""
        self.asked: list[list[int] | None] = []
        self.portion = 1000

    async def ask(self, _: str, offsets: list[int] | None) -> Posts:
        self.asked.append(offsets)
        if offsets is None:
            return Posts(self.name, [], [], [], [], False)
        given = [*offsets, *([0] * len(self.posts))]
        starts = [max(first, at) for first, at in zip(self.first, given, strict=False)]
        parts = [posts[at : at + self.portion] for posts, at in zip(self.posts, starts, strict=True)]
        times = [time for part in parts for time in part]
        more = any(len(part) == self.portion for part in parts)
        await asyncio.sleep(0)
        users = [self.users[time % len(self.users)] for time in times]
        return Posts(self.name, starts, [len(part) for part in parts], users, times, more)


def recent(topic: Topic) -> Recent:
    return Recent(lambda: ["node"], topic.ask)


async def times(asked: Recent, at: dict[str, list[int]]) -> list[int] | None:
    found = await asked.top(at, {"x"})
    return None if found is None else [-age for age, _ in reversed(found)]


async def test_only_what_is_new_is_asked_for() -> None:
    """A node is asked for what is not known yet, in portions, from a position that moves with progress."""
    topic = Topic(10)
    topic.portion = 4
    known = recent(topic)
    assert await times(known, {"store-1": [3]}) == [3, 4, 5, 6, 7, 8, 9]
    assert topic.asked == [None, [3], [7]]
    topic.posts[0] += [10, 11]
    assert await times(known, {"store-1": [5]}) == [5, 6, 7, 8, 9, 10, 11]
    assert topic.asked[3:] == [[10]]
    assert await times(known, {"store-1": [1]}) == list(range(1, 12))
    topic.posts[0] += range(12, 40)
    assert await times(known, {"store-1": [38]}) == [38, 39]
    assert topic.asked[-1] == [38]


@pytest.mark.parametrize("seed", range(5))
async def test_only_the_best_are_wanted(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """However many were posted since, by whomever and in whatever order they were stored, a feed gets the
    newest of those it is for."""
    monkeypatch.setattr(tribbler_recent, "STRIDE", 7)
    choice = random.Random(seed)
    topic = Topic(0, 0)
    topic.users = ["x", "y", "z"]
    for n in range(2):
        stored = sorted(range(1, 600), key=lambda time: time + choice.choice((0, 0, 0, 1, 2, 50, 500)))
        topic.posts[n] = stored[: choice.randrange(500)]
    at = [choice.randrange(100) for _ in topic.posts]
    best = await recent(topic).top({"store-1": at}, {"x", "z"})
    after = {time for posts, start in zip(topic.posts, at, strict=True) for time in posts[start:]}
    assert best == [(-time, "xyz"[time % 3]) for time in sorted(after, reverse=True) if time % 3 != 1][:LIMIT]


async def test_partitions_and_stores() -> None:
    """A partition that is new, and a store that no timeline knows, are read from their beginning."""
    topic = Topic(3, 2)
    known = recent(topic)
    assert await times(known, {"store-1": [1, 2]}) == [1, 2]
    topic.posts.append([2000, 2001])
    topic.first.append(0)
    assert await times(known, {"store-1": [1, 2]}) == [1, 2, 2000, 2001]
    assert await times(recent(topic), {"another-1": [5]}) == [0, 1, 2, 1000, 1001, 2000, 2001]
    assert await times(recent(Topic()), {"store-1": []}) == []


async def test_what_is_gone() -> None:
    """Where retention has dropped something after the position, or the node has another store or topic now,
    it is not known what was posted."""
    topic = Topic(10)
    topic.first = [4]
    assert await times(recent(topic), {"store-1": [3]}) is None
    known = recent(topic)
    assert await times(known, {"store-1": [4]}) == [4, 5, 6, 7, 8, 9]
    topic.name = "restored-1"
    assert await times(known, {"store-1": [4]}) is None
    assert await times(known, {"restored-1": [9]}) == [9]
    topic.name = "restored-2"  # as after the topic was deleted: what was only there is gone
    assert await times(recent(topic), {"restored-1": [9]}) is None
    assert await times(recent(topic), {"restored-1": [9], "restored-2": [9]}) == [9]


async def test_many_ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions that are under way together do not spoil what is known, also when it is cut short."""
    monkeypatch.setattr(tribbler_recent, "WINDOW", 6)
    topic = Topic(8)
    known = recent(topic)
    await times(known, {"store-1": [4]})
    topic.posts[0] += [8, 9]
    found = await asyncio.gather(*(times(known, {"store-1": [at]}) for at in (4, 6, 8, 4, 9)))
    for at, some in zip((4, 6, 8, 4, 9), found, strict=True):
        assert some in (None, list(range(at, 10)))
    assert await times(known, {"store-1": [9]}) == [9]
