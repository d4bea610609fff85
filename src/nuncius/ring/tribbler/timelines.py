"""Home feeds that the pipeline has computed, and their update on read.

A timeline is valid for the subscriptions it was computed from, and for the tribbles up to a position in each
store's topic. Both may have moved on. So a reader adds the tribbles after that position (few, if the job runs
often), and those of users followed since, and drops those of users no longer followed. The result is either
exactly the feed or uncertain: a full timeline does not contain tribbles older than its last one. If it is
uncertain, the feed is merged from the tribbles of all followed users instead.

Runs of the job rewrite only timelines that change. One key of the whole ring, PROGRESS, written at the end of
each run, says up to where the other timelines are valid, too.
"""

from typing import TypeVar

import msgspec

from nuncius.ring.tribbler.model import LIMIT, Reference

T = TypeVar("T")

PROGRESS = "timelines:progress"

Positions = dict[str, list[int]]
"""By topic (each store has one): the next offset of each of its partitions."""


class TimelineProgress(msgspec.Struct, frozen=True):
    """The job's progress: every timeline of this lineage is valid up to this position, for the subscriptions
    that it lists."""

    lineage: str
    run: int
    at: Positions


class Timeline(msgspec.Struct, frozen=True):
    """One user's feed. The tribbles are in two columns, newest first; `of` lists the users followed."""

    lineage: str
    run: int
    at: Positions
    of: list[str]
    users: list[str]
    posted: list[int]

    def position(self, progress: TimelineProgress | None) -> Positions:
        """Return the position up to which the timeline is complete."""
        covered = progress is not None and progress.lineage == self.lineage and progress.run >= self.run
        return progress.at if covered and progress is not None else self.at

    def references(self, followed: frozenset[str]) -> list[Reference]:
        """Return the timeline's tribbles of these users."""
        return [
            (-posted, user) for posted, user in zip(self.posted, self.users, strict=True) if user in followed
        ]

    @property
    def floor(self) -> Reference | None:
        """The last tribble of a full timeline: older ones may be missing. None: nothing is missing."""
        return (-self.posted[-1], self.users[-1]) if len(self.users) >= LIMIT else None

    def is_certain(self, best: list[Reference]) -> bool:
        """Return True if no missing tribble can belong to the best."""
        floor = self.floor
        return floor is None or (len(best) >= LIMIT and best[-1] <= floor)


def decode_timeline(value: str | None) -> Timeline | None:
    """Decode a key's value. Return None if there is none, or if it is something else."""
    return _decoded(_TIMELINE, value)


def decode_progress(value: str | None) -> TimelineProgress | None:
    return _decoded(_PROGRESS, value)


def _decoded(decoder: msgspec.json.Decoder[T], value: str | None) -> T | None:
    try:
        return None if value is None else decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeError):
        return None


_TIMELINE = msgspec.json.Decoder(Timeline)
_PROGRESS = msgspec.json.Decoder(TimelineProgress)
