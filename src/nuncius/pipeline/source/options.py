"""The options of a read, checked before any request to a store.

topic                 a name, or several with commas between them
topicPattern          or a regular expression for the whole name
partitions            only these, such as "1,3"
startingOffsets       "earliest" (the default, for streams, too: what is forgotten is not lost), "latest"
                      (streams), or JSON such as {"news": {"1": 5}}; partitions not named: earliest
endingOffsets         "latest" or JSON, the first offset that is not read (batch)
startingTimestamp     ISO 8601 (UTC unless it says otherwise) or milliseconds since 1970
endingTimestamp       the same; entries from the first time up to but not including the second (batch)
rowsPerSlice          a partition with more rows is read by several tasks
maxRowsPerBatch       the most rows of a micro-batch, shared fairly by the partitions (streams)
subscription          the name under which a stream and its lag are seen among a topic's subscribers
holdRetention         whether that subscription keeps retention from dropping what is not read yet
failOnDataLoss        false: entries that are gone cost a warning instead of the query
tier                  "live": the store; "lake": the archive; "all": both as one
lake                  where the archive is; by default where the store says
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from nuncius.pipeline import place
from nuncius.pipeline.errors import InvalidOption
from nuncius.pipeline.numbers import whole
from nuncius.store.names import JOBS

Tier = Literal["live", "lake", "all"]
_TIERS: dict[str, Tier] = {"live": "live", "lake": "lake", "all": "all"}
Edge = Literal["earliest", "latest"]
Offsets = Mapping[str, Mapping[int, int]]

ROWS_PER_SLICE = 500_000
_PLACE = ("store", "dataDir")
_COMMON = (
    *("topic", "topicPattern", "partitions", "startingOffsets", "startingTimestamp"),
    *("rowsPerSlice", "failOnDataLoss", "tier", "lake"),
)
_BATCH = ("endingOffsets", "endingTimestamp")
_STREAM = ("maxRowsPerBatch", "subscription", "holdRetention")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read. Times are in microseconds since 1970."""

    dsn: str
    topics: tuple[str, ...]
    pattern: str | None
    partitions: frozenset[int] | None
    start: Edge | Offsets
    end: Edge | Offsets
    not_before: int | None
    before: int | None
    rows_per_slice: int
    rows_per_batch: int | None
    subscription: str | None
    hold_retention: bool
    fail_on_data_loss: bool
    tier: Tier
    lake: str | None


def parse(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Parse the options of a read. Raise InvalidOption with an explanation if one is invalid."""
    _check_names(options, streaming)
    given = _Given(options)
    topics = given.names("topic")
    pattern = given.pattern("topicPattern")
    if bool(topics) == bool(pattern):
        raise InvalidOption("say what to read: either option 'topic' or option 'topicPattern'")
    parsed = ReadOptions(
        dsn=place.store_dsn(options),
        topics=topics,
        pattern=pattern,
        partitions=given.numbers("partitions"),
        start=given.offsets(
            "startingOffsets", "earliest", {"earliest", "latest"} if streaming else {"earliest"}
        ),
        end=given.offsets("endingOffsets", "latest", {"latest"}),
        not_before=given.time("startingTimestamp"),
        before=given.time("endingTimestamp"),
        rows_per_slice=given.number("rowsPerSlice") or ROWS_PER_SLICE,
        rows_per_batch=given.number("maxRowsPerBatch"),
        subscription=given.text("subscription"),
        hold_retention=given.flag("holdRetention", default=False),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        tier=given.tier("tier"),
        lake=given.text("lake"),
    )
    _check_together(parsed, given)
    return parsed


def _check_names(options: Mapping[str, str], streaming: bool) -> None:
    allowed = {name.lower(): name for name in (*_PLACE, *_COMMON, *(_STREAM if streaming else _BATCH))}
    elsewhere = {name.lower() for name in (_BATCH if streaming else _STREAM)}
    for name in options:
        if name.lower() in elsewhere:
            raise InvalidOption(f"option {name!r} is for {'batch reads' if streaming else 'streams'}")
        if name.lower() not in allowed:
            near = difflib.get_close_matches(name.lower(), allowed, 1)
            hint = (
                f": did you mean {allowed[near[0]]!r}?"
                if near
                else f"; there are {', '.join(allowed.values())}"
            )
            raise InvalidOption(f"unknown option {name!r}{hint}")


def _check_together(parsed: ReadOptions, given: "_Given") -> None:
    for offsets, time in (("startingOffsets", "startingTimestamp"), ("endingOffsets", "endingTimestamp")):
        if given.text(offsets) and given.text(time):
            raise InvalidOption(f"options {offsets!r} and {time!r} exclude each other")
    if parsed.not_before is not None and parsed.before is not None and parsed.not_before > parsed.before:
        raise InvalidOption("'startingTimestamp' is after 'endingTimestamp'")
    if parsed.hold_retention and parsed.subscription is None:
        raise InvalidOption("'holdRetention' needs a name to hold it under: option 'subscription'")
    if parsed.subscription is not None and parsed.partitions is not None:
        raise InvalidOption("a 'subscription' is for whole topics: it does not go with 'partitions'")
    if parsed.subscription is not None and parsed.subscription.startswith(JOBS):
        raise InvalidOption(f"the name of a 'subscription' does not begin with {JOBS}, which is for jobs")
    if parsed.lake is not None and parsed.tier == "live":
        raise InvalidOption("a 'lake' is read with option 'tier' set to 'lake' or 'all'")


class _Given:
    """A parser of options by name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): str(value).strip() for name, value in options.items()}

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower()) or None

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(part.strip() for part in (self.text(name) or "").split(",") if part.strip())
        )

    def pattern(self, name: str) -> str | None:
        text = self.text(name)
        if text is not None:
            try:
                re.compile(text)
            except re.error as error:
                raise InvalidOption(f"{name!r} is not a regular expression: {error}") from error
        return text

    def number(self, name: str) -> int | None:
        text = self.text(name)
        return None if text is None else whole(repr(name), text)

    def numbers(self, name: str) -> frozenset[int] | None:
        parts = self.names(name)
        if not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise InvalidOption(f"{name!r} are numbers from 1 on, such as '1,3', not {self.text(name)!r}")
        return frozenset(map(int, parts)) or None

    def flag(self, name: str, *, default: bool) -> bool:
        text = (self.text(name) or str(default)).lower()
        if text not in {"true", "false"}:
            raise InvalidOption(f"{name!r} is true or false, not {text!r}")
        return text == "true"

    def tier(self, name: str) -> Tier:
        text = (self.text(name) or "live").lower()
        if text not in _TIERS:
            raise InvalidOption(f"{name!r} is live, lake or all, not {text!r}")
        return _TIERS[text]

    def time(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            if text.removeprefix("-").isdecimal():
                time = moment(int(text) * 1000)
            else:
                time = datetime.fromisoformat(text)
                time = time if time.tzinfo else time.replace(tzinfo=UTC)
        except (ValueError, OverflowError) as error:
            raise InvalidOption(
                f"{name!r} is a time such as 2026-01-31T12:00:00Z, or milliseconds since 1970, not {text!r}"
            ) from error
        # Stay away from the limits of Python's calendar: searches add and subtract.
        time = min(max(time, _EPOCH), _EPOCH.replace(year=9999))
        return (time - _EPOCH) // timedelta(microseconds=1)

    def offsets(self, name: str, default: Edge, edges: set[str]) -> Edge | Offsets:
        text = self.text(name) or default
        word = text.lower()
        if word in edges:
            return "earliest" if word == "earliest" else "latest"
        try:
            return _offsets(json.loads(text))
        except (ValueError, TypeError, AttributeError) as error:
            words = " or ".join(f"'{edge}'" for edge in sorted(edges))
            raise InvalidOption(
                f'{name!r} is {words}, or JSON such as {{"news": {{"1": 5}}}}, not {text!r}'
            ) from error


def _offsets(decoded: object) -> Offsets:
    """Parse offsets as users write them, or as a stream's progress shows them (with the topics' ids)."""
    if not isinstance(decoded, dict):
        raise TypeError
    return {
        topic: {int(partition): _offset(at) for partition, at in places.items() if partition != "id"}
        for topic, places in decoded.items()
    }


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError
    return value


def moment(microseconds: int) -> datetime:
    """Convert microseconds since 1970 to a datetime."""
    return _EPOCH + timedelta(microseconds=microseconds)
