"""`trends`: the most frequent words, hashtags or values of a JSON field in a topic, in sliding windows of
time, published to a topic window by window.

A window is published when it is closed: when an entry arrives that is later than the window's end by more
than `late`. Entries that arrive for it afterwards are dropped and counted. Only the times of entries count,
so a topic without new entries has no new trends, and reading an old topic gives the trends of its time.

All existing entries are read as one batch, however many: if they were read in portions, the entries of a
partition that lags behind the others would look late, and be dropped.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from nuncius.pipeline.errors import InvalidOption
from nuncius.pipeline.jobs.frames import kept
from nuncius.pipeline.jobs.job import Context, Job, Summary

WINDOW, SLIDE, LATE, OF, TOP = "10 minutes", "1 minute", "5 minutes", "words", 10
_WORD = r"(\p{L}[\p{L}\p{M}\p{N}]*)"
_HASHTAG = r"(#[\p{L}\p{M}\p{N}_]+)"
_FIELD = "json:"

SETTINGS = {
    "topic": "the topic to read",
    "to": "the topic to publish to; by default the same name with .trends behind it",
    "window": f"the length of a window ({WINDOW})",
    "slide": f"how far apart windows begin ({SLIDE})",
    "late": f"how long a window waits for entries that come late ({LATE})",
    "of": f"words, hashtags, or json:FIELD ({OF})",
    "at": "when an entry counts: arrival, or json:FIELD with a time in it (arrival)",
    "top": f"how many of each window ({TOP})",
}


def trends(entries: DataFrame, *, top: int = TOP, **how: str) -> DataFrame:
    """Return the most frequent terms of each window, for a table of entries: columns `window_start`,
    `window_end`, `rank`, `term` and `count`. Equally frequent terms are ranked alphabetically. The other
    arguments are those of `counted`."""
    return ranked(counted(entries, **how), top)


def counted(
    entries: DataFrame,
    *,
    window: str = WINDOW,
    slide: str = SLIDE,
    late: str = LATE,
    of: str = OF,
    at: str = "arrival",
) -> DataFrame:
    """Count each term in each window, for a table or a stream of entries."""
    text = sf.col("value").cast("string")
    said = entries.select(_time(at, text).alias("time"), _terms(of, text).alias("terms"))
    return (
        said.withWatermark("time", late)
        # Outer: entries without terms advance the watermark, too; an inner explode would drop them before.
        .select("time", sf.explode_outer("terms").alias("term"))
        .where("term is not null")
        .groupBy(sf.window("time", window, slide), "term")
        .agg(sf.count("*").alias("count"))
        .select(
            sf.col("window.start").alias("window_start"),
            sf.col("window.end").alias("window_end"),
            "term",
            "count",
        )
    )


def ranked(counts: DataFrame, top: int = TOP) -> DataFrame:
    """Return the top terms of each window."""
    order = Window.partitionBy("window_start", "window_end").orderBy(sf.desc("count"), "term")
    return (
        counts.withColumn("rank", sf.row_number().over(order))
        .where(sf.col("rank") <= top)
        .select("window_start", "window_end", "rank", "term", "count")
    )


def _terms(of: str, text: Column) -> Column:
    if of == "words":
        return sf.regexp_extract_all(sf.lower(text), sf.lit(_WORD))
    if of == "hashtags":
        return sf.regexp_extract_all(sf.lower(text), sf.lit(_HASHTAG))
    if of.startswith(_FIELD) and of != _FIELD:
        found = sf.get_json_object(text, _path(of))
        # A single value, or a list.
        values = sf.coalesce(sf.from_json(found, "array<string>"), sf.array(found))
        return sf.filter(values, lambda value: value.isNotNull())
    raise InvalidOption(f"trends are of words, hashtags or json:FIELD, not of {of!r}")


def _time(at: str, text: Column) -> Column:
    if at == "arrival":
        return sf.col("time")
    if at.startswith(_FIELD) and at != _FIELD:
        return sf.try_to_timestamp(sf.get_json_object(text, _path(at)))
    raise InvalidOption(f"an entry counts at its arrival or at json:FIELD, not at {at!r}")


def _path(setting: str) -> str:
    return "$." + setting.removeprefix(_FIELD)


def run(context: Context) -> Summary:
    topic = context.setting("topic")
    to = context.setting("to", f"{topic}.trends")
    names = ("window", "slide", "late", "of", "at")
    chosen = {name: context.settings[name] for name in names if name in context.settings}
    top = context.number("top", TOP, 10_000)
    counts = counted(context.read(stream=True, topic=topic), **chosen)
    written = windows = 0

    def publish(closed: DataFrame, _: int) -> None:
        """Publish closed windows. The sink recognises query and batch, so a replay adds nothing."""
        nonlocal written, windows
        with kept(ranked(closed, top).orderBy("window_start", "rank").coalesce(1)) as result:
            rows, starts = result.agg(sf.count("*"), sf.count_distinct("window_start")).collect()[0]
            if rows:
                key = sf.date_format("window_start", "yyyy-MM-dd'T'HH:mm:ss'Z'").alias("key")
                lines = result.select(sf.to_json(sf.struct(*result.columns)).alias("value"), key)
                options = {"store": context.dsn, "topic": to, "name": "trends"}
                lines.write.format("nuncius").options(**options).mode("append").save()
            written += rows
            windows += starts

    place = context.checkpoint_for(topic=topic, to=to, **chosen)
    done = context.stream(counts.writeStream.foreachBatch(publish), checkpoint=place)
    facts: dict[str, object] = {"topic": to, "windows": windows, "late": done.rows_late}
    return Summary(done.rows_read, written, facts)


JOB = Job("trends", "The most frequent words, hashtags or JSON values, by windows of time.", run, SETTINGS)
