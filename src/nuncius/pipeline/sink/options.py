"""The options of a write: its target, its columns, and its name."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from nuncius.pipeline import place
from nuncius.pipeline.errors import InvalidOption, InvalidSchema
from nuncius.pipeline.numbers import whole

ROWS = 100_000
BYTES = 32 << 20
MOST_ROWS = 1_000_000
MAX_PARTITIONS = 1000
MAX_BATCH = 2**31 - 1
_NAME = re.compile(r"[^/\x00-\x1f]{1,120}")

OPTIONS = (
    *("store", "dataDir", "topic", "queue", "name", "batch"),
    *("partitions", "priority", "receiver", "rowsPerTransaction"),
)
# Spark passes these to every sink.
_SPARKS = {"path", "queryname", "checkpointlocation", "outputmode"}

_BYTES = (BinaryType, StringType)
_NUMBER = (IntegerType, LongType, ShortType)
_COLUMNS: dict[str, dict[str, tuple[type[DataType], ...]]] = {
    "topic": {
        "topic": (StringType,),
        "value": _BYTES,
        "key": (StringType,),
        "headers": (MapType,),
        "partition": _NUMBER,
    },
    "queue": {
        "queue": (StringType,),
        "value": _BYTES,
        "priority": _NUMBER,
        "receiver": (StringType,),
        "headers": (MapType,),
    },
}
_SAID = {
    "value": "value (binary or string)",
    "headers": "headers (map<string,string>)",
    "partition": "partition (int)",
    "priority": "priority (int)",
}


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """The target of rows, with the defaults of their columns."""

    dsn: str
    kind: str
    """"topic" or "queue"."""
    name: str | None
    """The topic or queue of all rows; None: a column names it for each row."""
    partitions: int
    priority: int
    receiver: str | None
    rows: int


@dataclass(frozen=True, slots=True)
class Label:
    """The name of a write. A repeated write under the same name stores nothing twice."""

    name: str | None
    batch: int | None
    nonce: str
    """Distinguishes writes without a name."""


def target(options: Mapping[str, str], schema: StructType, overwrite: bool) -> WriteTarget:
    if overwrite:
        raise InvalidOption('topics and queues only grow: write with mode("append")')
    _check_names(options)
    kind = _kind(options, schema)
    _check_schema(schema, kind)
    name = place.option(options, kind)
    return WriteTarget(
        place.store_dsn(options),
        kind,
        name,
        _number(options, "partitions", 1, 1, MAX_PARTITIONS),
        _number(options, "priority", 5, 1, 10),
        place.option(options, "receiver"),
        _number(options, "rowsPerTransaction", ROWS, 1, MOST_ROWS),
    )


def label(options: Mapping[str, str], *, streaming: bool) -> Label:
    name = place.option(options, "name")
    batch = place.option(options, "batch")
    if name is not None and not _NAME.fullmatch(name):
        raise InvalidOption("the name of a sink has 1 to 120 characters, and no slash among them")
    if streaming and batch is not None:
        raise InvalidOption("a stream numbers its batches itself: leave option 'batch' out")
    if batch is not None and name is None:
        raise InvalidOption("option 'batch' numbers the writes of a sink: give it a name with option 'name'")
    number = None if batch is None else _number(options, "batch", 0, 0, MAX_BATCH)
    return Label(name, number, uuid.uuid4().hex)


def _check_names(options: Mapping[str, str]) -> None:
    known = {option.lower() for option in OPTIONS} | _SPARKS
    for given in options:
        if given.lower() not in known:
            raise InvalidOption(f"a write has no option {given!r}: there are {', '.join(OPTIONS)}")


def _kind(options: Mapping[str, str], schema: StructType) -> str:
    ways = [f"option {kind!r}" for kind in _COLUMNS if place.option(options, kind)]
    ways += [f"column {kind!r}" for kind in _COLUMNS if kind in schema.fieldNames()]
    if not ways:
        raise InvalidOption("where to? Give option 'topic' or 'queue', or a column of that name")
    if len(ways) > 1:
        raise InvalidOption(f"where to? Leave {' or '.join(ways)} out")
    return "topic" if "topic" in ways[0] else "queue"


def _check_schema(schema: StructType, kind: str) -> None:
    columns = _COLUMNS[kind]
    accepted = ", ".join(_SAID.get(name, f"{name} (string)") for name in columns)
    for field in schema:
        types = columns.get(field.name)
        if types is None:
            raise InvalidSchema(f"a {kind} has no column {field.name!r}: select some of {accepted}")
        if not isinstance(field.dataType, types) or not _is_text_map(field.dataType):
            raise InvalidSchema(
                f"column {field.name!r} cannot be {field.dataType.simpleString()}: a {kind} takes {accepted}"
            )
    if "value" not in schema.fieldNames():
        raise InvalidSchema(
            f"there is no column 'value', which is what is written: a {kind} takes {accepted}"
        )
    if len(set(schema.fieldNames())) < len(schema):
        raise InvalidSchema(f"each column can be there once, not {schema.fieldNames()}")


def _is_text_map(kind: DataType) -> bool:
    if not isinstance(kind, MapType):
        return True
    return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)


def _number(options: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    given = place.option(options, name)
    return default if given is None else whole(f"option {name!r}", given, least, most)
