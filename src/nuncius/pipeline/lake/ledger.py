"""The store's record of its lake: its location, and the lock of the run that archives."""

from contextlib import AbstractContextManager

from nuncius.pipeline import place
from nuncius.pipeline.errors import InvalidOption, PipelineError
from nuncius.pipeline.lake import storage
from nuncius.pipeline.lake.table import Lake
from nuncius.pipeline.place import Database
from nuncius.store.queries import query

LOCK = 78008

_LOCATION = query("lake", "location")
_ENTER = query("lake", "enter")


class ArchiveRuns(PipelineError):
    """Another run archives."""


def location(db: Database, given: str | None = None) -> str | None:
    """Return the location of the lake: as given, else as recorded in the store; None: it has no lake yet."""
    if given:
        return storage.normal(given)
    known: str | None = db.value(_LOCATION)
    return known


def enter(db: Database, lake: Lake) -> None:
    """Record this as the store's lake, and create it if needed. Refuse a second lake, because each would
    lack the other's entries."""
    known = location(db)
    if known is None:
        if lake.exists() and lake.rounds > 0:
            raise InvalidOption(f"the lake at {lake.location} is another store's: choose another place")
    elif known != lake.location:
        raise InvalidOption(
            f"the lake of this store is at {known}, not at {lake.location}. To move it, copy its files and "
            "change its location in table nuncius.lakes"
        )
    lake.create()
    db.execute(_ENTER, lake.location)


def alone(dsn: str) -> AbstractContextManager[Database]:
    """Exclude other runs, because they would repeat the same work. The table itself prevents duplicate
    entries."""
    busy = ArchiveRuns("another run archives this store at the moment: stop it, or let it finish")
    return place.alone(dsn, LOCK, busy)
