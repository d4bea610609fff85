"""Entries of the table's log about files. They contain the range of offsets and times, so that readers skip
files without opening them. Other programs that read Delta tables use the range as well."""

import json
import time
from datetime import UTC, datetime, timedelta

from deltalake.transaction import AddAction, RemoveAction

from nuncius.pipeline.lake.files import CONSTANT, LakeFile

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def add(file: LakeFile, *, is_news: bool) -> AddAction:
    """Build the action that adds a file. `is_news` is false if its entries were in the table before."""
    stats = {
        "numRecords": file.rows,
        "minValues": {"offset": file.first, "time": _text(file.first_time)},
        "maxValues": {"offset": file.end - 1, "time": _text(file.last_time)},
        "nullCount": {"offset": 0, "time": 0, "value": 0},
    }
    return AddAction(file.path, file.size, _constants(file), _now(), is_news, json.dumps(stats))


def remove(file: LakeFile, *, is_news: bool) -> RemoveAction:
    """Build the action that removes a file."""
    return RemoveAction(file.path, is_news, _now(), file.size, _constants(file))


def _constants(file: LakeFile) -> dict[str, str | None]:
    return {name: str(getattr(file, name)) for name in CONSTANT}


def _text(microseconds: int) -> str:
    time_of_arrival = _EPOCH + timedelta(microseconds=microseconds)
    return time_of_arrival.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _now() -> int:
    return time.time_ns() // 1_000_000
