"""Home feeds as tables: from follows and posts to the newest tribbles of all whom each user follows.

The work is bounded: only the newest tribbles of an author can be in a feed, so each author is one row of
limited size. Users are divided into parts, and each part gets an author's row once, however many of its users
follow that author, so the followers of a popular author do not make one task longer than the others.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

LIMIT = 100
PART = 10_000
"""Approximate number of users in a part."""

AUTHORS = "author string, times array<bigint>"
USERS = "user string, of array<string>"
FEEDS = "user string, of array<string>, users array<string>, posted array<bigint>"
_NAMES = pa.list_(pa.field("element", pa.string()))
_SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("of", _NAMES),
        ("users", _NAMES),
        ("posted", pa.list_(pa.field("element", pa.int64()))),
    ]
)


def newest(posts: DataFrame) -> DataFrame:
    """Return each author's newest tribbles (columns `author`, `times`, newest first) from posts (`author`,
    `posted`)."""
    order = Window.partitionBy("author").orderBy(sf.desc("posted"))
    return (
        posts.distinct()
        .withColumn("rank", sf.row_number().over(order))
        .where(sf.col("rank") <= LIMIT)
        .groupBy("author")
        .agg(sf.sort_array(sf.collect_list("posted"), asc=False).alias("times"))
    )


def posts_of(authors: DataFrame) -> DataFrame:
    """Convert authors' rows back to posts."""
    return authors.select("author", sf.explode("times").alias("posted"))


def following(follows: DataFrame) -> DataFrame:
    """Group follows (`user`, `author`) by user (columns `user`, `of`)."""
    return follows.groupBy("user").agg(sf.sort_array(sf.collect_set("author")).alias("of"))


def follows_of(users: DataFrame) -> DataFrame:
    """Convert users' rows back to follows."""
    return users.select("user", sf.explode("of").alias("author"))


def affected(before: DataFrame, now: DataFrame, posts: DataFrame) -> DataFrame:
    """Return the users whose feeds have changed (column `user`): users whose follows have changed, including
    those left without any, and followers of authors with new posts."""
    was = before.withColumnRenamed("of", "was")
    changed = now.join(was, "user", "full").where(~sf.col("of").eqNullSafe(sf.col("was"))).select("user")
    authors = posts.select("author").distinct()
    readers = follows_of(now).join(authors, "author", "leftsemi").select("user")
    return changed.union(readers).distinct()


def feeds(users: DataFrame, authors: DataFrame, part: int = PART) -> DataFrame:
    """Return each user's feed: columns `user`, `of` (whom the user follows), and the parallel lists `users`
    and `posted`, newest first; tribbles of the same nanosecond are ordered by their users' names."""
    parts = max(1, -(-users.count() // part))
    divided = users.withColumn("part", sf.pmod(sf.hash("user"), sf.lit(parts)))
    followed = divided.select(sf.col("part").alias("to"), sf.explode("of").alias("author")).distinct()
    needed = followed.join(authors, "author")
    return divided.groupBy("part").cogroup(needed.groupBy("to")).applyInArrow(_merge, FEEDS)


def _merge(users: pa.Table, authors: pa.Table) -> pa.Table:
    """Compute the feeds of one part's users from the rows of all authors whom they follow."""
    # Sort by name, so that the lower of two indexes is the earlier name.
    authors = authors.combine_chunks().sort_by("author")
    names = authors.column("author").combine_chunks()
    times = authors.column("times").combine_chunks()
    starts = times.offsets.to_numpy()
    values = times.values.to_numpy()
    followed = users.column("of").combine_chunks()
    places = pc.index_in(followed.values, names).fill_null(-1).to_numpy()
    ends = followed.offsets.to_numpy()
    chosen: list[npt.NDArray[np.int64]] = []
    for first, last in pairwise(ends):
        mine = places[first:last]
        chosen.append(_newest(mine[mine >= 0], starts, values))
    which = np.concatenate(chosen) if chosen else np.empty(0, np.int64)
    sizes = np.cumsum([0, *map(len, chosen)]).astype(np.int32)
    owners = np.searchsorted(starts, which, side="right") - 1
    return pa.table(
        {
            "user": users.column("user"),
            "of": users.column("of"),
            "users": pa.ListArray.from_arrays(sizes, names.take(pa.array(owners))),
            "posted": pa.ListArray.from_arrays(sizes, pa.array(values[which])),
        }
    ).cast(_SCHEMA)


def _newest(
    authors: Sequence[int] | npt.NDArray[np.int64],
    starts: npt.NDArray[np.int32],
    values: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return the indexes of these authors' newest tribbles, newest first."""
    where = np.concatenate(
        [np.empty(0, np.int64), *(np.arange(starts[n], starts[n + 1]) for n in sorted(authors))]
    )
    ages = -values[where]
    if len(ages) > LIMIT:
        near = ages <= np.partition(ages, LIMIT - 1)[LIMIT - 1]
        where, ages = where[near], ages[near]
    # Stable: for tribbles of the same time, the author with the lower index stays first.
    return where[np.argsort(ages, kind="stable")][:LIMIT]
