"""`timelines`: the home feeds of all users of a ring, computed in bulk instead of merged at every read.

A run reads follows and posts, and writes the changed feeds to the ring: of users whose follows have changed,
and of followers of authors with new posts. Servers use them for users who follow many, merged with newer
posts, so feeds are current between runs.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from nuncius.pipeline import place
from nuncius.pipeline.errors import InvalidOption, PipelineError
from nuncius.pipeline.jobs.frames import kept
from nuncius.pipeline.jobs.home_feeds import ring, stores
from nuncius.pipeline.jobs.home_feeds.feeds import affected, feeds, following, newest, posts_of
from nuncius.pipeline.jobs.home_feeds.state import FeedsProgress, Tables
from nuncius.pipeline.jobs.home_feeds.stores import StoreNow
from nuncius.pipeline.jobs.job import Context, Job, Summary

RING = "127.0.0.1:9009"
EVERY = 30
LOCK = 78015

SETTINGS = {
    "ring": f"a node of the ring, or several with commas between them, as host:port ({RING})",
    "stores": "the nodes' stores, with commas between them: addresses, or data directories; by default the "
    "one that the job is run on",
    "every": f"the seconds from one look to the next, with --follow ({EVERY})",
}


class TimelinesRun(PipelineError):
    """Another run computes the timelines."""


@dataclass(slots=True)
class TimelinesDone:
    """Totals of the posts and feeds of a run."""

    posts: int = 0
    feeds: int = 0
    rounds: int = 0


def run(context: Context) -> Summary:
    nodes = [each for each in map(str.strip, context.setting("ring", RING).split(",")) if each]
    every = context.number("every", EVERY)
    dsns = stores.addresses(context.setting("stores", context.dsn))
    if not nodes or not dsns:
        raise InvalidOption("which ring? Give --set ring=host:port and --set stores=...")
    checkpoint = context.checkpoint_for(ring="timelines")
    done = TimelinesDone()
    busy = TimelinesRun("another run computes the timelines of this ring: stop it, or let it finish")
    with place.alone(dsns[0], LOCK, busy):  # concurrent runs would overwrite each other's progress
        one_round(context, nodes, dsns, checkpoint, done)
        while context.follow and not context.stopping.wait(every):
            one_round(context, nodes, dsns, checkpoint, done)
    facts: dict[str, object] = {"feeds": done.feeds, "rounds": done.rounds, "stores": len(dsns)}
    return Summary(done.posts, done.feeds, facts)


def one_round(
    context: Context, nodes: Sequence[str], dsns: Sequence[str], checkpoint: str, done: TimelinesDone
) -> None:
    """Bring all timelines up to date."""
    spark = context.spark
    now = stores.look(dsns)
    last = ring.progress_of(nodes)
    before = _tables(context, checkpoint, last, now)
    at = {each.topic: each.next for each in now}
    if last is not None and before is not None:
        progress = FeedsProgress(last.lineage, last.run + 1, at)
        fresh = stores.posts_since(spark, now, last.at)
    else:
        progress = FeedsProgress(uuid.uuid4().hex, 1, at)
        fresh = stores.posts(spark, now)
    tables = Tables.of(spark, checkpoint, progress)
    context.progress("reading follows and posts")
    with kept(fresh.distinct()) as posts:
        authors = posts if before is None else posts_of(before.authors()).union(posts)
        tables.write(newest(authors), following(stores.follows(spark, now)))
        users = tables.users()
        if before is not None:
            changed = affected(before.users(), users, posts)
            users = users.join(changed, "user", "leftsemi")
            gone = before.users().join(tables.users(), "user", "leftanti")
            done.feeds += ring.write(nodes, _empty(gone), progress)
        context.progress("writing feeds")
        done.feeds += ring.write(nodes, feeds(users, tables.authors()), progress)
        done.posts += posts.count()
    ring.advance(nodes, progress)
    done.rounds += 1
    if before is not None:
        before.remove()


def _tables(
    context: Context, checkpoint: str, last: FeedsProgress | None, now: Sequence[StoreNow]
) -> Tables | None:
    """Return the tables of the last run, or None if this run cannot continue from them."""
    if last is None or {each.topic for each in now} != set(last.at):
        return None
    if not all(each.has_since(last.at[each.topic]) for each in now):
        return None
    tables = Tables.of(context.spark, checkpoint, last)
    return tables if tables.exist() else None


def _empty(users: DataFrame) -> DataFrame:
    """Return empty feeds, for users without follows."""
    none = sf.array().cast("array<string>")
    return users.select(
        "user", none.alias("of"), none.alias("users"), sf.array().cast("array<bigint>").alias("posted")
    )


JOB = Job("timelines", "The home feeds of a Tribbler ring, for users who follow many.", run, SETTINGS)
