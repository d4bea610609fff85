"""The session that we open: its settings, its silence, and what it sends to executors."""

import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from nuncius.pipeline import sessions


def python(script: str, *, timeout: float = 100) -> subprocess.CompletedProcess[str]:
    """A process of its own: a process has one session, and the tests' have theirs."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def test_settings_of_a_session() -> None:
    """A session is in UTC, listens on loopback only, knows our format, and says nothing by itself."""
    done = python("""
        from nuncius.pipeline import session
        spark = session("local[2]", app="mine", settings={
            "spark.sql.shuffle.partitions": "3",
            "spark.driver.extraJavaOptions": "-Dmine=1"})
        conf = spark.sparkContext.getConf()
        print(spark.conf.get("spark.sql.session.timeZone"), conf.get("spark.driver.host"),
            conf.get("spark.driver.bindAddress"), spark.conf.get("spark.sql.shuffle.partitions"),
            conf.get("spark.ui.enabled"), spark.sparkContext.appName)
        print(spark._jvm.java.lang.System.getProperty("mine"))
        try:
            df = spark.sql("select 'a' as value")
            df.write.format("nuncius").option("topic", "t").mode("append").save()
        except Exception as error:
            print("which store?" in str(error))
        assert session("local[2]") is spark
    """)
    said = ["UTC 127.0.0.1 127.0.0.1 3 false mine", "1", "True"]
    assert done.stdout.splitlines() == said, done.stderr
    # The JVM itself speaks of a module; Spark does not speak.
    spoken = [line for line in done.stderr.splitlines() if "incubator" not in line]
    assert spoken == []


@pytest.mark.parametrize(
    ("master", "shuffle", "loopback"),
    [
        ("local", "1", True),
        ("local[3]", "3", True),
        ("local[4,2]", "4", True),
        ("spark://127.0.0.1:7077", None, True),
        ("spark://far:7077", None, False),
        ("yarn", None, False),
    ],
)
def test_masters(master: str, shuffle: str | None, loopback: bool) -> None:
    """What runs on this machine only is bound to it, and shuffles into as many parts as it has cores."""
    chosen = sessions.settings_for(master, {})
    assert chosen.get("spark.sql.shuffle.partitions") == shuffle
    assert ("spark.driver.bindAddress" in chosen) is loopback


def test_every_core() -> None:
    """local[*] has as many partitions a shuffle as the machine has cores; a user's own setting wins."""
    assert int(sessions.settings_for("local[*]", {})["spark.sql.shuffle.partitions"]) >= 1
    own = {"spark.sql.shuffle.partitions": "7"}
    assert sessions.settings_for("local[*]", own)["spark.sql.shuffle.partitions"] == "7"


def test_what_is_sent_to_executors(tmp_path: Path) -> None:
    """The archive has our packages, and Python can import the sink from it alone."""
    archive = sessions.archive(tmp_path)
    with zipfile.ZipFile(archive) as made:
        names = set(made.namelist())
    assert {"nuncius/__init__.py", "nuncius/pipeline/sink/sink.py", "pyspark_nuncius/__init__.py"} <= names
    assert not [name for name in names if "__pycache__" in name]
    done = python(f"""
        import sys
        sys.path.insert(0, {str(archive)!r})
        import nuncius.pipeline.sink.sink, nuncius.pipeline.sink.topics, nuncius.pipeline.source.source
        import pyspark_nuncius
        print(nuncius.pipeline.sink.sink.__file__)
    """)
    assert done.stdout.startswith(str(archive)), done.stderr


def test_shipping_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session gets the archive once, however often it is asked for."""
    added: list[str] = []
    monkeypatch.setattr(spark.sparkContext, "addPyFile", added.append)
    sessions.ship(spark)
    assert [Path(path).name for path in added] == ["nuncius-for-executors.zip"]
    assert zipfile.is_zipfile(added[0])
