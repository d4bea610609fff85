"""Filling topics from synchronous tests, quickly and with what a test cares about."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from nuncius.pipeline import place

_PUBLISH = """
select bases from nuncius.publish_many(
    array[(select topic_id from nuncius.topics where topic_name = $1)], null,
    case when $4::text is null then null
        else array[(select publisher_id from nuncius.ensure_publishers(array[$4]))] end,
    array[$5::bigint], array[1], array[$2::integer], array[cardinality($3::bytea[])],
    null, $6::text[], $7::text[], $3)
"""
# Bulk entries go past the procedures: a million through them would take minutes.
_BULK = """
with heads as materialized (
    select p.partition_id, nuncius.next_offset(p.partition_id) as next
    from nuncius.partitions p join nuncius.topics t using (topic_id) where t.topic_name = $1
)
insert into nuncius.entries (partition_id, entry_offset, key, body)
select h.partition_id, h.next + n, 'key ' || n % 1000, convert_to(lpad(n::text, $3, 'x'), 'UTF8')
from heads h, generate_series(0, $2 - 1) n
"""


def sql(dsn: str, statement: str, *arguments: Any) -> list[asyncpg.Record]:
    """The rows of any statement."""
    with place.connect(dsn) as db:
        return db.rows(statement, *arguments)


def value(dsn: str, statement: str, *arguments: Any) -> Any:
    """The first column of the first row of any statement."""
    with place.connect(dsn) as db:
        return db.value(statement, *arguments)


def create(dsn: str, topic: str, partitions: int = 1) -> int:
    """Makes a topic and answers with its id."""
    made: int = value(dsn, "select nuncius.create_topic($1, $2)", topic, partitions)
    return made


def publish(
    dsn: str,
    topic: str,
    bodies: Sequence[bytes | str],
    *,
    partition: int = 1,
    keys: Sequence[str | None] | None = None,
    headers: Sequence[Mapping[str, str] | None] | None = None,
    publisher: str | None = None,
    count: int = 1,
) -> None:
    """Publishes entries into one partition of a topic, which must exist; `count` is the first one's."""
    with place.connect(dsn) as db:
        db.row(
            _PUBLISH,
            topic,
            partition,
            [body.encode() if isinstance(body, str) else body for body in bodies],
            publisher,
            None if publisher is None else count,
            keys,
            None if headers is None else [None if h is None else json.dumps(dict(h)) for h in headers],
        )


def fill(dsn: str, topic: str, rows: int, *, partitions: int = 1, size: int = 100) -> None:
    """Puts as many entries of `size` bytes into each partition of a topic, made if it is not there."""
    with place.connect(dsn) as db:
        db.row("select nuncius.ensure_topic($1, $2)", topic, partitions)
        db.execute(_BULK, topic, rows, size)


def partition_ids(dsn: str, topic: str) -> dict[int, int]:
    """The partition_id of each partition of a topic."""
    rows = sql(
        dsn,
        "select p.partition, p.partition_id from nuncius.partitions p join nuncius.topics t using (topic_id)"
        " where t.topic_name = $1 order by 1",
        topic,
    )
    return {row["partition"]: row["partition_id"] for row in rows}


def drop_before(dsn: str, topic: str, offset: int, partition: int = 1) -> None:
    """Moves retention of a partition forward, as the collector does."""
    with place.connect(dsn) as db:
        db.execute(
            "update nuncius.partitions p set first_offset = $3 from nuncius.topics t"
            " where t.topic_id = p.topic_id and t.topic_name = $1 and p.partition = $2",
            topic,
            partition,
            offset,
        )
        while db.value("select nuncius.collect()"):
            pass


def grow(dsn: str, topic: str, partitions: int) -> None:
    """Adds partitions to a topic."""
    assert value(dsn, "select nuncius.grow_topic($1, $2)", topic, partitions)
