"""`timelines`: feeds as tables, and on a real ring: equal to what merging gives, whatever happens between."""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cluster.tribbler_ring import Ring, ring_in_a_thread
from nuncius.client.tribbler import CallFailed, TribblerClient
from nuncius.pipeline.errors import InvalidOption
from nuncius.pipeline.jobs.home_feeds import ring as timelines_ring
from nuncius.pipeline.jobs.home_feeds.feeds import (
    LIMIT,
    affected,
    feeds,
    following,
    follows_of,
    newest,
    posts_of,
)
from nuncius.pipeline.jobs.job import Context, Summary
from nuncius.pipeline.jobs.timelines import JOB, TimelinesRun
from pipeline.filling import drop_before, sql

Feed = list[tuple[str, int]]


def follows_table(spark: SparkSession, follows: Mapping[str, Sequence[str]]) -> DataFrame:
    rows = [(user, author) for user, authors in follows.items() for author in authors]
    return spark.createDataFrame(rows, "user string, author string")


def posts_table(spark: SparkSession, posts: Sequence[tuple[str, int]]) -> DataFrame:
    return spark.createDataFrame(list(posts), "author string, posted bigint")


# The tables


def test_newest(spark: SparkSession) -> None:
    """Of each author the newest tribbles are kept, newest first, each once."""
    posts = [("a", n) for n in range(LIMIT + 50)] + [("b", 7), ("b", 9), ("b", 7)]
    found = {row.author: row.times for row in newest(posts_table(spark, posts)).collect()}
    assert found == {"a": list(range(LIMIT + 49, 49, -1)), "b": [9, 7]}
    again = newest(posts_of(newest(posts_table(spark, posts))).union(posts_table(spark, [("b", 8)])))
    assert {row.author: row.times for row in again.collect()} == found | {"b": [9, 8, 7]}


@pytest.mark.parametrize("part", [10_000, 3])
def test_feeds(spark: SparkSession, part: int) -> None:
    """A feed is the newest of all who are followed, ties by name, however the users are divided."""
    choice = random.Random(part)
    names = [*(f"user-{n}" for n in range(30)), "Ä", "\N{SNOWMAN}", "~"]
    follows = {user: choice.sample(names, choice.randrange(25)) for user in names}
    posts = {(choice.choice(names), choice.randrange(1, 900)) for _ in range(1500)}
    posts |= {("user-1", n) for n in range(1, 300)}
    authors = newest(posts_table(spark, sorted(posts)))
    found = {
        row.user: (row.of, list(zip(row.users, row.posted, strict=True)))
        for row in feeds(following(follows_table(spark, follows)), authors, part).collect()
    }
    for user, followed in follows.items():
        mine = sorted((-time, author) for author, time in posts if author in followed)[:LIMIT]
        expected = (sorted(followed), [(author, -age) for age, author in mine])
        assert found.get(user, ([], [])) == expected
    assert found.keys() == {user for user, followed in follows.items() if followed}


def test_affected(spark: SparkSession) -> None:
    """Feeds change for those who follow others than before, nobody any more, or somebody who has posted."""
    before = following(
        follows_table(spark, {"same": ["x"], "more": ["x"], "none": ["x"], "reader": ["y", "x"]})
    )
    now = following(
        follows_table(spark, {"same": ["x"], "more": ["x", "z"], "new": ["x"], "reader": ["x", "y"]})
    )
    found = affected(before, now, posts_table(spark, [("y", 1), ("unread", 1)]))
    assert sorted(row.user for row in found.collect()) == ["more", "new", "none", "reader"]
    assert sorted(map(tuple, follows_of(now).where("user = 'more'").collect())) == [
        ("more", "x"),
        ("more", "z"),
    ]


def test_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many timelines are put with one call, fewer where they are long, and each once."""
    monkeypatch.setattr(timelines_ring, "SIZE", 100)
    lengths = [0] * 250 + [30, 30, 30, 30, 200, 5, 300]
    pairs = [("k", "v" * length) for length in lengths]
    calls = list(timelines_ring.portions(pairs))
    assert [pair for call in calls for pair in call] == pairs
    assert [len(call) for call in calls] == [100, 100, 51, 3, 1, 1, 1]
    assert list(timelines_ring.portions([])) == []


# The job on a ring


class World:
    """A ring, the job for it, and what a reader sees."""

    def __init__(self, ring: Ring, spark: SparkSession, checkpoint: Path) -> None:
        self.ring = ring
        self._spark = spark
        self.checkpoint = checkpoint
        self._clients = [TribblerClient(node) for node in ring.nodes]
        self._turn = 0

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def call(self, method: str, **arguments: str) -> dict[str, Any]:
        """A call through any node; it must be answered with OK."""
        self._turn += 1
        reply = self._clients[self._turn % len(self._clients)].call(f"Tribserver.{method}", arguments)
        assert reply["Status"] == 0, (method, arguments, reply)
        return reply

    def users(self, *names: str) -> None:
        for name in names:
            self.call("CreateUser", Userid=name)

    def follow(self, user: str, *targets: str) -> None:
        for target in targets:
            self.call("AddSubscription", Userid=user, Targetuser=target)

    def unfollow(self, user: str, target: str) -> None:
        self.call("RemoveSubscription", Userid=user, Targetuser=target)

    def post(self, user: str, text: str) -> None:
        self.call("PostTribble", Userid=user, Contents=text)

    def feed(self, user: str) -> Feed:
        """What the server says."""
        tribbles = self.call("GetTribblesBySubscription", Userid=user)["Tribbles"]
        return [(each["Userid"], each["Posted"]) for each in tribbles]

    def merged(self, user: str) -> Feed:
        """What everybody's tribbles, put together, say."""
        followed = self.call("GetSubscriptions", Userid=user)["Userids"]
        each = [self.call("GetTribbles", Userid=name)["Tribbles"] for name in followed]
        found = sorted((-post["Posted"], post["Userid"]) for tribbles in each for post in tribbles)
        return [(author, -age) for age, author in found[:LIMIT]]

    def timeline(self, user: str) -> dict[str, Any] | None:
        reply = self._clients[0].call("StorageRPC.Get", {"Key": f"{user}:timeline"})
        return json.loads(reply["Value"]) if reply["Status"] == 0 else None

    def run(self, **settings: str) -> Summary:
        return JOB.run(self._context(settings))

    def follow_rounds(self, rounds: int) -> Summary:
        """Runs the job with --follow until it has begun so many rounds."""
        context = self._context({"every": "1"})
        context.follow = True
        begun: list[str] = []

        def show(text: str, *_: object) -> None:
            begun.append(text)
            if begun.count("reading follows and posts") == rounds:
                context.stopping.set()

        context.show = show
        return JOB.run(context)

    def _context(self, settings: dict[str, str]) -> Context:
        given = {"ring": ",".join(self.ring.nodes), "stores": ",".join(self.ring.dsns), **settings}
        return Context(self._spark, self.ring.dsns[0], given, checkpoint=str(self.checkpoint))


@pytest.fixture
def world(dsn: str, away: str, spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    """A ring of two whose servers use timelines for every user."""
    with (
        ring_in_a_thread([dsn, away], timelines_from=1) as ring,
        closing(World(ring, spark, tmp_path / "checkpoint")) as made,
    ):
        yield made


def test_the_job(world: World) -> None:
    """Feeds equal merging at every moment: before the first run, after it, after posts, follows and unfollows
    that the job has not seen, and after it has. A run writes only the feeds that have changed."""
    authors = [f"author-{n}" for n in range(8)]
    readers = ["all", "few", "fickle", "hermit"]
    world.users(*authors, *readers)
    world.follow("all", *authors)
    world.follow("few", *authors[:2])
    world.follow("fickle", *authors[:4])
    for n in range(150):
        world.post(authors[n % 7], str(n))

    def check() -> None:
        for reader in readers:
            assert world.feed(reader) == world.merged(reader), reader

    check()
    first = world.run()
    assert (first.rows_read, first.rows_written) == (150, 3)
    timeline = world.timeline("few")
    assert timeline is not None
    assert timeline["of"] == authors[:2]
    assert list(zip(timeline["users"], timeline["posted"], strict=True)) == world.merged("few")
    check()

    # What the job has not seen.
    world.post("author-0", "newer")
    world.post("author-7", "the first of author 7")
    check()
    world.unfollow("fickle", "author-1")
    world.follow("fickle", "author-6", "author-7")
    check()
    world.unfollow("all", "author-3")  # its timeline is full: what moves up is not in it
    check()
    world.follow("hermit", "author-5")
    check()

    second = world.run()
    assert (second.rows_read, second.rows_written) == (2, 4)
    check()
    third = world.run()
    assert (third.rows_read, third.rows_written) == (0, 0)
    check()

    # A post that one reader sees, and one who follows nobody any more.
    world.post("author-6", "for some")
    world.unfollow("hermit", "author-5")
    fourth = world.run()
    assert (fourth.rows_read, fourth.rows_written) == (1, 3)
    assert (world.timeline("hermit") or {})["of"] == []
    # Progress is ahead of a timeline that was not rewritten, and still right.
    assert (world.timeline("few") or {})["run"] == 2
    world.post("author-1", "after all that")
    world.follow("hermit", "author-5")
    check()


def test_a_run_that_died(world: World) -> None:
    """A run that wrote feeds and died before it could say so has spoilt nothing, and is done again; without
    its tables the job begins anew."""
    world.users("reader", "author")
    world.follow("reader", "author")
    world.post("author", "one")
    world.run()
    done = world.timeline("reader")
    assert done is not None
    world.post("author", "two")
    # As a killed run leaves it: a timeline of the next run, and no word of progress.
    with TribblerClient(world.ring.nodes[0]) as client:
        client.call("StorageRPC.Put", {"Key": "reader:timeline", "Value": json.dumps(done | {"run": 2})})
    assert world.feed("reader") == world.merged("reader")
    assert world.run().rows_written == 1
    for path in world.checkpoint.rglob("_SUCCESS"):
        path.unlink()
    world.post("author", "three")
    followed = world.follow_rounds(2)
    assert (followed.rows_read, followed.rows_written, followed.facts["rounds"]) == (3, 1, 2)
    again = world.timeline("reader")
    assert again is not None
    assert again["lineage"] != done["lineage"]
    assert world.feed("reader") == world.merged("reader")


def test_retention(world: World) -> None:
    """Where retention has dropped entries of the topic, or somebody the topic, server and job fall back on
    the keys."""
    world.users("reader", "author")
    world.follow("reader", "author")
    for n in range(5):
        world.post("author", str(n))
    world.run()
    world.post("author", "later")
    for dsn in world.ring.dsns:
        if sql(dsn, "select 1 from nuncius.topics where topic_name = 'tribbles'"):
            drop_before(dsn, "tribbles", 6)
    assert len(world.feed("reader")) == 6
    assert world.run().rows_read == 6
    world.post("author", "last")
    assert len(world.feed("reader")) == 7
    for dsn in world.ring.dsns:
        sql(dsn, "select nuncius.delete_topic('tribbles')")
    for n in range(10):
        world.post("author", f"in a new topic {n}")
    assert len(world.feed("reader")) == 17
    assert world.run().rows_read == 17
    assert len(world.feed("reader")) == 17


def test_settings(world: World, tmp_path: Path) -> None:
    """Settings that cannot be meant so are refused, and so is a second run beside the first."""
    for given, words in [
        ({"every": "often"}, "every is a number from 1 on"),
        ({"ring": ","}, "which ring"),
        ({"stores": str(tmp_path)}, "no server runs in the data directory"),
        ({"stores": f"{world.ring.dsns[0]},{world.ring.dsns[0]}"}, "a store is named twice"),
    ]:
        with pytest.raises(InvalidOption, match=words):
            world.run(**given)
    from nuncius.pipeline import place

    with place.connect(world.ring.dsns[0]) as db:
        db.value("select pg_advisory_lock(78015, 1)")
        with pytest.raises(TimelinesRun, match="another run"):
            world.run()


def test_the_client(world: World) -> None:
    """The client pipelines calls, answers in their order, and says what a node complains about."""
    with TribblerClient(world.ring.nodes[1]) as client:
        puts = ({"Key": f"k{n}:x", "Value": str(n)} for n in range(700))
        assert [reply["Status"] for reply in client.call_many("StorageRPC.Put", puts)] == [0] * 700
        gets = ({"Key": f"k{n}:x"} for n in range(700))
        assert [reply["Value"] for reply in client.call_many("StorageRPC.Get", gets)] == list(
            map(str, range(700))
        )
        with pytest.raises(CallFailed, match="can't find method"):
            client.call("StorageRPC.Nonsense", {})
