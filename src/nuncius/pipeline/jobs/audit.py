"""`audit`: reconciles published, stored, delivered and confirmed messages, and reports differences.

It has up to three inputs: the stored entries (live, in the lake, or both), the history that clients wrote,
and the positions that the store keeps for its subscribers. Each is optional; the audit makes every check that
its inputs allow.
"""

import json
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from nuncius.pipeline.jobs.auditing import delivered
from nuncius.pipeline.jobs.auditing import stored as kept
from nuncius.pipeline.jobs.auditing.findings import FAULT, KINDS, findings
from nuncius.pipeline.jobs.auditing.inputs import Wanted, gather
from nuncius.pipeline.jobs.job import Context, Job, Summary

# Amounts for a topic (without a subscriber) and for a subscriber. `delivered` counts distinct entries,
# `deliveries` all deliveries; `confirmed` counts the offsets before a subscriber's position.
ACCOUNTS = (
    "topic string, subscriber string, published bigint, acknowledged bigint, stored bigint, "
    "delivered bigint, deliveries bigint, confirmed bigint, lag bigint"
)
SHOWN = 50
_AMOUNTS = ("published", "acknowledged", "stored", "delivered", "deliveries", "confirmed", "lag")


def audit(
    stored: DataFrame | None,
    history: DataFrame | None = None,
    positions: DataFrame | None = None,
    ends: DataFrame | None = None,
) -> DataFrame:
    """Return a row for each topic, partition, subscriber and kind of finding: see `findings.KINDS`.

    The frames have the columns of `stored.STORED`, `history.SCHEMA`, `delivered.POSITIONS` and `stored.ENDS`.
    Without `ends`, the expected offsets are derived from positions or else from entries. Frames are read
    several times: `persist` them if reading is expensive or the data may change.
    """
    if ends is None:
        ends = _ends(stored, positions)
    found: list[DataFrame] = []
    if stored is not None and ends is not None:
        found += [
            kept.gaps(stored, ends),
            kept.duplicate_offsets(stored),
            kept.duplicate_counts(stored),
            kept.duplicate_messages(stored, history),
            kept.reordered(stored),
            kept.count_gaps(stored),
        ]
        if history is not None:
            found.append(kept.unstored(stored, history, ends))
    if history is not None:
        found += [
            delivered.skipped(history, positions, ends),
            delivered.out_of_order(history),
            delivered.redelivered(history),
            delivered.repeated(history),
            delivered.unconfirmed(history, positions),
            delivered.undelivered(history),
        ]
    if positions is not None:
        found += [delivered.lags(positions), delivered.failing(positions)]
        if history is not None:
            found.append(delivered.forgotten(history, positions))
    if not found:
        raise ValueError("there is nothing to audit: give what is stored, a history, or positions")
    return findings(reduce(DataFrame.unionAll, found))


def accounts(stored: DataFrame | None, history: DataFrame | None, positions: DataFrame | None) -> DataFrame:
    """Return a row for each topic, and one for each of its subscribers, with all amounts."""
    parts: list[DataFrame] = []
    if stored is not None:
        parts.append(_part(stored.groupBy("topic").agg(sf.count("*").alias("stored"))))
    if history is not None:
        publishings = history.groupBy("topic").agg(
            sf.count_if(sf.col("event") == "published").alias("published"),
            sf.count_if(sf.col("event") == "acknowledged").alias("acknowledged"),
        )
        which = sf.struct("partition", sf.coalesce(sf.col("offset").cast("string"), "message"))
        deliveries = (
            history.where("event = 'delivered'")
            .groupBy("topic", "subscriber")
            .agg(sf.count_distinct(which).alias("delivered"), sf.count("*").alias("deliveries"))
        )
        parts += [_part(publishings), _part(deliveries)]
    if positions is not None:
        readers = positions.where("subscriber is not null").groupBy("topic", "subscriber")
        lag = sf.col("next_offset") - sf.coalesce("position", "first_offset")
        parts.append(_part(readers.agg(sf.sum("position").alias("confirmed"), sf.sum(lag).alias("lag"))))
    elif history is not None:
        readers = (
            history.where("event = 'confirmed'")
            .groupBy("topic", "subscriber", "partition")
            .agg((sf.max("offset") + 1).alias("position"))
            .groupBy("topic", "subscriber")
        )
        parts.append(_part(readers.agg(sf.sum("position").alias("confirmed"))))
    together = reduce(DataFrame.unionAll, parts).groupBy("topic", "subscriber")
    return together.agg(*(sf.sum(amount).alias(amount) for amount in _AMOUNTS))


def _part(rows: DataFrame) -> DataFrame:
    def column(name: str, kind: str) -> Column:
        return (sf.col(name) if name in rows.columns else sf.lit(None)).cast(kind).alias(name)

    return rows.select(
        "topic", column("subscriber", "string"), *(column(amount, "bigint") for amount in _AMOUNTS)
    )


def _ends(stored: DataFrame | None, positions: DataFrame | None) -> DataFrame | None:
    if positions is None:
        return None if stored is None else kept.ends_of(stored)
    return positions.groupBy("topic", "partition").agg(
        sf.max("first_offset").alias("first_offset"), sf.max("next_offset").alias("next_offset")
    )


def run(context: Context) -> Summary:
    topic = context.settings.get("topic")
    wanted = Wanted(
        topics=None if topic is None else [name.strip() for name in topic.split(",")],
        history=context.settings.get("history"),
        tier=context.setting("tier", "live"),
        identity=context.settings.get("id"),
        lake=context.settings.get("lake"),
    )
    context.progress("reading")
    inputs = gather(context.spark, context.dsn, wanted)
    try:
        frames = (inputs.stored, inputs.history, inputs.positions)
        context.progress("comparing", inputs.rows)
        found = [row.asDict() for row in audit(*frames, inputs.ends).collect()]
        balance = [row.asDict() for row in accounts(*frames).orderBy("topic", "subscriber").collect()]
    finally:
        inputs.release()
    found.sort(key=_order)
    facts: dict[str, Any] = {
        "faults": sum(row["count"] for row in found if row["severity"] == FAULT),
        "notes": sum(row["count"] for row in found if row["severity"] != FAULT),
        "topics": len(inputs.topics),
    }
    if "report" in context.settings:
        report = {
            **facts,
            "topics": inputs.topics,
            "tier": wanted.tier,
            "findings": found,
            "accounts": balance,
        }
        Path(context.settings["report"]).write_text(json.dumps(report, indent=2) + "\n")
    facts["findings"] = _table(("", "what", "where", "for", "entries", "meaning"), map(_finding, found))
    facts["accounts"] = _table(("topic", "subscriber", *_AMOUNTS), map(_account, balance))
    return Summary(rows_read=inputs.rows, facts=facts)


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    """Sort faults first, in the order of their explanations."""
    kinds = list(KINDS)
    about = (row["topic"], row["partition"] or 0, row["subscriber"] or "")
    return (kinds.index(row["kind"]), *about)


def _finding(row: dict[str, Any]) -> tuple[str, ...]:
    where = row["topic"] if row["partition"] is None else f"{row['topic']}/{row['partition']}"
    meaning = f"{KINDS[row['kind']].meaning}: {'; '.join(row['examples'])}"
    return row["severity"], row["kind"], where, row["subscriber"] or "", str(row["count"]), meaning


def _account(row: dict[str, Any]) -> tuple[str, ...]:
    amounts = ("" if row[amount] is None else str(row[amount]) for amount in _AMOUNTS)
    return row["topic"], row["subscriber"] or "", *amounts


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Format rows in aligned columns, up to a limit of lines."""
    lines = list(rows)
    if not lines:
        return []
    shown = [heads, *lines[:SHOWN]]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    texts = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in shown]
    return texts + [f"... and {len(lines) - SHOWN} more"] * (len(lines) > SHOWN)


JOB = Job(
    "audit",
    "reconciles what was published, stored, delivered and confirmed",
    run,
    {
        "topic": "topics, separated by commas; without it, all (or those of the history)",
        "history": "a directory of histories, to compare with what is stored",
        "tier": "what is stored: live (default), lake, all, or none to look at the history alone",
        "id": "what tells messages of the history apart: value (default), key or header:NAME",
        "lake": "where the lake is, if not where the store says",
        "report": "a file for the findings, as JSON",
    },
)
