"""Spark sessions with our settings, on this machine or on a cluster."""

import atexit
import os
import re
import sys
import zipfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer
from pyspark.sql import SparkSession

from nuncius.pipeline import compiled, java
from nuncius.pipeline.errors import InvalidOption
from nuncius.store import tempdirs

SHIPPED = ("nuncius", "pyspark_nuncius")
_LOCAL = re.compile(r"local(\[(?P<cores>\d+|\*)(,\d+)?\])?")
_REMOTE = re.compile(r"(spark|k8s)://.+|yarn")
_LOOPBACK = re.compile(r"spark://(127\.0\.0\.1|localhost)[:/]")
_JVM_OPTIONS = "spark.driver.extraJavaOptions"


def session(
    master: str = "local[*]", *, app: str = "nuncius", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session with the format "nuncius" for reading and writing.

    With a master that is not local, our own packages are sent to the executors. Their dependencies (pyarrow,
    asyncpg, adbc-driver-postgresql, deltalake) must be installed there, in the Python that PYSPARK_PYTHON
    names or, by default, under the path of this one. If this process already has a session, that one is
    used, and settings that only a new one can have are ignored.
    """
    from nuncius.pipeline import register

    if not (_LOCAL.fullmatch(master) or _REMOTE.fullmatch(master)):
        raise InvalidOption(
            f"a master is local, local[2], local[*], spark://HOST:PORT or yarn, not {master!r}"
        )
    java.provide()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in settings_for(master, settings or {}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if not _LOCAL.fullmatch(master):
        ship(spark)
    register(spark)
    return spark


def settings_for(master: str, given: Mapping[str, str]) -> dict[str, str]:
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    local = _LOCAL.fullmatch(master)
    if local or _LOOPBACK.match(master):
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if local:
        cores = local["cores"] or "1"
        # Spark's default of 200 shuffle partitions is for clusters: here it means 200 small tasks a batch.
        chosen["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 1) if cores == "*" else cores
        chosen["spark.ui.enabled"] = "false"  # open no port that the user did not ask for
    chosen |= given
    quiet = f"-Dlog4j2.configurationFile={_log_settings()}"
    chosen[_JVM_OPTIONS] = f"{quiet} {given.get(_JVM_OPTIONS, '')}".strip()
    return chosen


def _log_settings() -> str:
    """Return the URI of the log settings, which the JVM reads before it logs anything."""
    return Path(str(resources.files(__package__).joinpath("log4j2.properties"))).as_uri()


def keep_quiet() -> None:
    """Suppress the error of the accumulator server: a signal ends the JVM as well, mostly a little earlier,
    and the server's thread would print the lost connection as an error."""

    def ignore(*_: object) -> None:
        """Print nothing."""

    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        server.handle_error = ignore  # type: ignore[method-assign, assignment]


def ship(spark: SparkSession) -> None:
    """Send our packages to the executors, once a session."""
    if any(Path(file).name == _ARCHIVE for file in spark.sparkContext.listFiles):
        return
    tempdirs.sweep()
    directory = tempdirs.make("nuncius-spark-")
    atexit.register(directory.remove)  # not earlier: every executor fetches it at its start
    spark.sparkContext.addPyFile(str(archive(directory.path)))


_ARCHIVE = "nuncius-for-executors.zip"


def archive(directory: Path) -> Path:
    """Write our packages to an importable zip file, for `addPyFile` or `spark-submit --py-files`."""
    path = directory / _ARCHIVE
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for package in SHIPPED:
            root = Path(str(resources.files(package)))
            for file in sorted(root.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    compiled.write(made, str(Path(package) / file.relative_to(root)), file.read_bytes())
    return path
