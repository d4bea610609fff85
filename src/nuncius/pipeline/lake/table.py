"""The lake's Delta table: which files it consists of, and how they change.

A commit changes the table from the version that was read to the next one. If another writer was faster, it
changes nothing, and the caller reads the table again and decides anew. So concurrent runs cannot both add an
entry, and cannot remove a file that was merged meanwhile: the table alone decides.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from nuncius.pipeline.errors import PipelineError
from nuncius.pipeline.lake import actions, storage
from nuncius.pipeline.lake.files import COLUMNS, CONSTANT, LakeFile

APPLICATION = "nuncius archive"
# The table's property that keeps the ends of partitions all of whose files are gone.
ENDS = "nuncius.ends"


class NotALake(PipelineError):
    """There is no lake at the location, or the table there is not a lake."""


class Overtaken(PipelineError):
    """Another run has added to the lake meanwhile."""


class Lake:
    """A lake at the version of its first read; `refresh` reads the newest version."""

    def __init__(self, location: str | Path) -> None:
        self.location = storage.normal(location)
        self._opened: DeltaTable | None = None
        self._found: pa.Table | None = None

    def exists(self) -> bool:
        return self._opened is not None or DeltaTable.is_deltatable(self.location)

    def create(self) -> None:
        """Create the table if there is none."""
        if self.exists():
            return
        storage.make_directory(self.location, "")
        DeltaTable.create(
            self.location,
            pa.schema([column.with_nullable(True) for column in COLUMNS]),
            mode="ignore",
            partition_by=list(CONSTANT),
            name="nuncius",
            description="Entries of topics, archived by nuncius",
        )
        storage.make_durable(self.location, f"_delta_log/{0:020}.*")

    def refresh(self) -> None:
        if self._opened is not None:
            self._opened.update_incremental()
            self._found = None

    @property
    def _table(self) -> DeltaTable:
        if self._opened is None:
            if not self.exists():
                raise NotALake(f"there is no lake at {self.location}: archive a topic first")
            opened = DeltaTable(self.location)
            if opened.metadata().partition_columns != list(CONSTANT):
                raise NotALake(f"the table at {self.location} was not made by nuncius")
            self._opened = opened
        return self._opened

    @property
    def _files(self) -> pa.Table:
        if self._found is None:
            found = pa.table(self._table.get_add_actions(flatten=True))
            self._found = pa.table(
                {
                    "path": found["path"],
                    # Delta does not distinguish an empty name from null.
                    "topic": pc.fill_null(found["partition.topic"], ""),
                    "partition": found["partition.partition"],
                    "partition_id": found["partition.partition_id"],
                    "first": found["min.offset"],
                    "end": pc.add(found["max.offset"], 1),
                    "first_time": found["min.time"].cast(pa.int64()),
                    "last_time": found["max.time"].cast(pa.int64()),
                    "size": found["size_bytes"],
                }
            ).sort_by([("partition_id", "ascending"), ("first", "ascending")])
        return self._found

    @property
    def version(self) -> int:
        return self._table.version()

    @property
    def rounds(self) -> int:
        """Return the number of committed rounds of archiving."""
        return self._table.transaction_version(APPLICATION) or 0

    def files(self, partition_ids: Iterable[int] | None = None) -> list[LakeFile]:
        """Return the files of these partitions, or of all, ordered by partition and offset. Their ranges are
        disjoint."""
        found = self._files
        if partition_ids is not None:
            wanted = pa.array(partition_ids, pa.int32())
            found = found.filter(pc.is_in(found["partition_id"], value_set=wanted))
        return [LakeFile(**row, location=self.location) for row in found.to_pylist()]

    def ends(self) -> dict[int, int]:
        """Return the end of the archived offsets for each partition ever archived. It never goes back."""
        ends = self.marks()
        highest = self._files.group_by("partition_id").aggregate([("end", "max")])
        for row in highest.to_pylist():
            ends[row["partition_id"]] = max(row["end_max"], ends.get(row["partition_id"], 0))
        return ends

    def marks(self) -> dict[int, int]:
        """Return the ends that were recorded when partitions lost their last file."""
        kept = json.loads(self._table.metadata().configuration.get(ENDS) or "{}")
        return {int(partition_id): end for partition_id, end in kept.items()}

    def append(self, files: Sequence[LakeFile], rounds: int) -> None:
        """Add archived files, unless a run has added files since the number of rounds was `rounds`. So a
        round is never committed twice."""
        added: list[AddAction | RemoveAction] = [actions.add(file, is_news=True) for file in files]
        while True:
            ends = self.ends()
            if self.rounds != rounds or any(file.first < ends.get(file.partition_id, 0) for file in files):
                raise Overtaken(f"another run archives into {self.location}")
            if self._commit(added, rounds + 1):
                return

    def replace(self, old: Sequence[LakeFile], new: Sequence[LakeFile]) -> bool:
        """Replace files by others with the same entries; without new files, remove the entries. Return False
        if another writer has changed the table, and nothing was done."""
        is_news = not new
        removed = [actions.remove(file, is_news=is_news) for file in old]
        return self._commit([*removed, *(actions.add(file, is_news=is_news) for file in new)])

    def mark(self, ends: Mapping[int, int]) -> bool:
        """Record the ends of partitions whose last file is about to be removed. Return False as `replace`."""
        marks = json.dumps(self.marks() | dict(ends))
        return self._step(
            lambda table, properties: table.alter.set_table_properties(
                {ENDS: marks}, raise_if_not_exists=False, commit_properties=properties
            )
        )

    def vacuum(self, grace: timedelta) -> list[str]:
        """Delete files that left the table longer than `grace` ago, or that failed attempts left behind.
        Readers of older versions and writers of the next one need the files of that time."""
        removed = self._table.vacuum(
            math.ceil(grace / timedelta(hours=1)), dry_run=False, enforce_retention_duration=False, full=True
        )
        self.refresh()
        return removed

    def _commit(self, changes: list[AddAction | RemoveAction], rounds: int | None = None) -> bool:
        transactions = [] if rounds is None else [Transaction(APPLICATION, rounds)]
        return self._step(
            lambda table, properties: table.create_write_transaction(
                changes, "append", table.schema(), list(CONSTANT), commit_properties=properties
            ),
            transactions,
        )

    def _step(
        self, change: Callable[[DeltaTable, CommitProperties], None], transactions: Sequence[Transaction] = ()
    ) -> bool:
        """Commit the next version of the table. Return False if another writer did: read the table again."""
        before = self.version
        properties = CommitProperties(max_commit_retries=0, app_transactions=list(transactions))
        try:
            change(self._table, properties)
        except CommitFailedError:
            self.refresh()
            if self.version == before:
                raise  # no other writer was faster: a real error
            return False
        storage.make_durable(self.location, f"_delta_log/{before + 1:020}.*")
        self.refresh()
        return True
