"""Home feeds that the pipeline has computed, and what makes them true now.

A timeline is right for the subscriptions it was made from and for the tribbles up to a position of each
store's topic. Both may have moved on. So with it are read the tribbles after its position (few, where the job
runs often), and those of users followed since; tribbles of users not followed any more are left out. What
comes out is the feed exactly, or it is not certain: a full timeline does not say what is older than its last
tribble. Then there is no answer, and the feed is merged from everybody's tribbles instead.

Runs of the job rewrite only timelines that change. How far the others are good, too, says one key of the
whole ring, PROGRESS, which is written at the end of each run.
"""

from typing import TypeVar

import msgspec

from nuncius.ring.tribbler.model import LIMIT, Reference

T = TypeVar("T")

PROGRESS = "timelines:progress"

Positions = dict[str, list[int]]
"""By topic (each store has one): the next offset of each of its partitions."""


class Progress(msgspec.Struct, frozen=True):
    """How far the job is: every timeline of this lineage holds up to this position, for the subscriptions
    that it names."""

    lineage: str
    run: int
    at: Positions


class Timeline(msgspec.Struct, frozen=True):
    """One user's feed. The tribbles are in two columns, newest first; `of` are the users followed."""

    lineage: str
    run: int
    at: Positions
    of: list[str]
    users: list[str]
    posted: list[int]

    def position(self, progress: Progress | None) -> Positions:
        """Up to where it is complete."""
        covered = progress is not None and progress.lineage == self.lineage and progress.run >= self.run
        return progress.at if covered and progress is not None else self.at

    def references(self, followed: frozenset[str]) -> list[Reference]:
        """What it has of these users."""
        return [
            (-posted, user) for posted, user in zip(self.posted, self.users, strict=True) if user in followed
        ]

    @property
    def floor(self) -> Reference | None:
        """The last tribble of a full timeline: older ones may be missing. None: it has everything."""
        return (-self.posted[-1], self.users[-1]) if len(self.users) >= LIMIT else None

    def is_certain(self, best: list[Reference]) -> bool:
        """Whether nothing that is missing here belongs among the best."""
        floor = self.floor
        return floor is None or (len(best) >= LIMIT and best[-1] <= floor)


def decode_timeline(value: str | None) -> Timeline | None:
    """What a key's value says; None when it says nothing, or something else."""
    return _decoded(_TIMELINE, value)


def decode_progress(value: str | None) -> Progress | None:
    return _decoded(_PROGRESS, value)


def _decoded(decoder: msgspec.json.Decoder[T], value: str | None) -> T | None:
    try:
        return None if value is None else decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeError):
        return None


_TIMELINE = msgspec.json.Decoder(Timeline)
_PROGRESS = msgspec.json.Decoder(Progress)
