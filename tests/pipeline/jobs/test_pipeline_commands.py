"""`nuncius pipeline` as a user meets it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fix_coverage import CONFIG
from nuncius.cli import errors
from nuncius.cli.app import build
from nuncius.cli.commands.pipeline import run as pipeline_run
from nuncius.cli.commands.pipeline import show as pipeline_show
from nuncius.cli.output import Format
from nuncius.pipeline import place
from nuncius.pipeline.jobs.job import Context, Job, Summary
from nuncius.pipeline.jobs.runs import JobRun, runs
from nuncius.pipeline.lake import Lake
from nuncius.store.server import embedded
from pipeline.cluster import until
from pipeline.filling import create, publish, sql, value
from pipeline.lakes import BEGINNING, put
from pipeline.written import bodies, entries

NUNCIUS = [sys.executable, "-m", "nuncius", "pipeline"]
QUICK = ["--master", "local[1]", "--conf", f"spark.executorEnv.{CONFIG}="]
AS_HERE = ["--master", "local[2]"]  # what the session of the tests has


def nuncius(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command that starts Spark, in a process of its own."""
    given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run([*NUNCIUS, *arguments], text=True, timeout=300, check=False, **given)


def here(*arguments: str) -> tuple[int, str, str]:
    """A command in this process: its exit code, output and errors."""
    runner = CliRunner(env={"NUNCIUS_DEBUG": None})
    result = runner.invoke(build("pipeline"), ["pipeline", *arguments], prog_name="nuncius")
    if result.exception is None or isinstance(result.exception, SystemExit):
        return result.exit_code, result.stdout, result.stderr
    return errors.exit_code(result.exception), result.stdout, errors.explain(result.exception)


# A worker of Spark's that starts while its JVM goes away ends with this.
_ORPHAN = re.compile(r'Traceback.*\n  File "[^"]*pyspark/daemon\.py".*\n(?:  .*\n)*\S.*\n?')


def spoken(stderr: str) -> list[str]:
    """What a command said on stderr; the JVM has a line of its own there, and Spark's workers may have."""
    return [line for line in _ORPHAN.sub("", stderr).splitlines() if "incubator" not in line]


def last(dsn: str) -> JobRun:
    with place.connect(dsn) as db:
        return runs(db)[0]


@pytest.fixture
def kept(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in this process finds the session of the tests, and leaves it as it is."""
    monkeypatch.setattr(type(spark), "stop", lambda self: None)


@contextmanager
def running(*arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A command that is gone afterwards, whatever happens."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*NUNCIUS, *arguments], **(pipes | options))
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


# Jobs


def test_a_run(data_dir: Path) -> None:
    """A job on the embedded store: a bar on the terminal while it runs, its summary as the only output, a row
    in the list of runs, and its place kept in the data directory."""
    terminal, slave = pty.openpty()
    chat = ["run", "trends", "--data-dir", str(data_dir), "--topic", "chat", "--set", "window=1 minute"]
    chat += ["--set", "slide=1 minute", "--set", "late=0 seconds", *QUICK]
    assert here("runs", "--data-dir", str(data_dir)) == (0, "no job has run yet\n", "")
    dsn = embedded.start(data_dir).dsn
    create(dsn, "chat")
    _say(dsn, 0, "a b a")
    _say(dsn, 5, "c")
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(_all_of, terminal)
        done = nuncius(*chat, "-o", "json", stderr=slave, env=os.environ | {"TERM": "xterm"})
        os.close(slave)
        shown = reading.result()
    assert done.returncode == 0, shown
    assert json.loads(done.stdout) == {
        "job": "trends",
        "state": "done",
        "rows_read": 2,
        "rows_written": 2,
        "facts": {"topic": "chat.trends", "windows": 1, "late": 0},
    }
    assert "trends" in shown
    assert "Traceback" not in shown
    assert list((data_dir / "pipeline" / "trends").glob("chat-*/commits/0"))
    _, listed, _ = here("runs", "--data-dir", str(data_dir), "-o", "json")
    (run,) = json.loads(listed)
    assert (run["job"], run["state"], run["rows_written"]) == ("trends", "done", 2)
    assert run["settings"]["topic"] == "chat"
    _, listed, _ = here("runs", "trends", "--data-dir", str(data_dir))
    header, line = listed.splitlines()
    assert header.split() == ["RUN", "JOB", "STATE", "BEGAN", "TOOK", "READ", "WRITTEN", "WHAT"]
    assert {"topic chat.trends", "windows 1", "late 0"} <= set(line.rsplit("  ", 1)[1].split(", "))


def _say(dsn: str, minute: int, text: str) -> None:
    sql(
        dsn,
        "insert into nuncius.entries (partition_id, entry_offset, time_of_arrival, body)"
        " select partition_id, nuncius.next_offset(partition_id), '2026-03-01'::timestamptz + $1 * interval"
        " '1 minute', convert_to($2, 'UTF8') from nuncius.partitions",
        minute,
        text,
    )


def _all_of(terminal: int) -> str:
    """What was written to a terminal whose other side is closed."""
    parts = []
    with open(terminal, "rb", buffering=0) as file:
        try:
            while part := file.read(4096):
                parts.append(part)
        except OSError:  # Linux says the end of a terminal so
            pass
    return b"".join(parts).decode()


OWN = """
    from pyspark.sql import functions as sf
    from pathlib import Path

    def louder(entries, mark="!"):
        "Says it louder."
        loud = sf.udf(lambda text: text.upper() + mark, "string")
        return entries.select(loud(sf.col("value").cast("string")).alias("value"))

    def stuck(entries, sign):
        from threading import Event

        def wait(text):
            Path(sign).touch()
            Event().wait()

        return entries.select(sf.udf(wait, "string")(sf.col("value").cast("string")).alias("value"))
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A directory with a user's module in it."""
    (tmp_path / "mine.py").write_text(textwrap.dedent(OWN))
    return tmp_path


@pytest.mark.usefixtures("kept")
def test_following_ones_own_job(dsn: str, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of one's own, found in the current directory, follows its topic until Ctrl-C, which is its
    normal end; started again it goes on where it was."""
    create(dsn, "in")
    publish(dsn, "in", ["a"])
    arguments = ["run", "--job", "mine:louder", "--topic", "in", "--to", "out", "--set", "mark=?"]
    arguments += ["--store", dsn, "--checkpoint", str(own / "places")]
    with running(*arguments, *QUICK, "--follow", cwd=own) as command:
        until(lambda: bodies(dsn, "out") == [b"A?"] or command.poll() is not None, "the first")
        publish(dsn, "in", ["b"])
        until(lambda: len(bodies(dsn, "out")) == 2 or command.poll() is not None, "the second")
        assert last(dsn).state == "running"
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=300)
    assert (command.returncode, spoken(err)) == (0, [])
    assert out.splitlines()[:3] == ["job           mine:louder", "state         stopped", "rows read     2"]
    assert last(dsn).state == "stopped"
    publish(dsn, "in", ["c"])
    monkeypatch.chdir(own)
    code, _, err = here(*arguments, *AS_HERE, "--once")
    assert (code, err) == (0, "")
    assert bodies(dsn, "out") == [b"A?", b"B?", b"C?"]


def test_stopping_a_run(dsn: str, own: Path) -> None:
    """SIGTERM ends a run that is not done: it is stopped, not failed, and the exit code says so."""
    create(dsn, "in")
    publish(dsn, "in", ["a"])
    sign = own / "sign"
    arguments = ["run", "--job", "mine:stuck", "--topic", "in", "--to", "out", "--set", f"sign={sign}"]
    with running(*arguments, "--store", dsn, "--checkpoint", str(own / "places"), *QUICK, cwd=own) as command:
        until(lambda: sign.exists() or command.poll() is not None, "the sign")
        command.send_signal(signal.SIGTERM)
        _, err = command.communicate(timeout=300)
    assert (command.returncode, spoken(err)) == (errors.INTERRUPTED, [])
    assert last(dsn).state == "stopped"
    assert entries(dsn, "out") == []


@pytest.mark.usefixtures("kept")
def test_a_failing_run(dsn: str, tmp_path: Path) -> None:
    """What goes wrong in a job is one line, and stands in the list of runs."""
    arguments = ["--topic", "none", "--store", dsn, "--checkpoint", str(tmp_path)]
    code, out, line = here("run", "trends", *arguments, *AS_HERE)
    assert code in {errors.FAILED, errors.USAGE}
    assert out == ""
    assert "none" in line
    assert len(line.splitlines()) == 1
    assert last(dsn).state == "failed"
    assert last(dsn).error == line
    _, listed, _ = here("runs", "--store", dsn)
    assert str(last(dsn).error) in listed


@pytest.mark.usefixtures("kept")
def test_an_audit_with_faults(dsn: str) -> None:
    """A run that finds faults says so with its exit code, for scripts that look after a broker."""
    create(dsn, "news")
    publish(dsn, "news", ["a", "b", "c"])
    sql(dsn, "delete from nuncius.entries where entry_offset = 1")
    code, out, err = here("run", "audit", "--topic", "news", "--store", dsn, *AS_HERE)
    assert (code, err) == (1, "")
    assert "gap" in out
    assert last(dsn).state == "done"


def test_shell(dsn: str) -> None:
    """The shell runs Python from a pipe, with a session that knows this store."""
    script = """
        publish(spark.sql("select 'a' as value union all select 'b'"), "news")
        print(entries("news").count(), follow("news").isStreaming)
        print(entries("news").select(sf.max("offset")).first()[0])
    """
    done = nuncius("shell", "--store", dsn, *QUICK, input=textwrap.dedent(script).lstrip())
    assert done.returncode == 0, done.stderr
    said = done.stdout.replace(">>> ", "").split()
    assert said == ["2", "True", "1"]
    assert sorted(bodies(dsn, "news")) == [b"a", b"b"]


# Without Spark


def test_jobs() -> None:
    """The jobs are listed with what can be set."""
    code, out, _ = here("jobs")
    assert code == 0
    assert "trends: The most frequent words" in out
    assert "    window       the length of a window (10 minutes)\n" in out
    _, out, _ = here("jobs", "-o", "json")
    assert [job["name"] for job in json.loads(out)] == ["archive", "audit", "evaluate", "timelines", "trends"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "give the name of a job, or --job for one of your own"),
        (["run", "trends", "--job", "a:b"], "give the name of a job, or --job"),
        (["run", "dance"], "there is no job 'dance': there are archive, audit, evaluate, timelines, trends"),
        (["run", "--job", "nowhere_here:x"], "there is no module 'nowhere_here'"),
        (["run", "trends", "--set", "windows=1"], "trends has no setting 'windows', but topic, to, window"),
        (["run", "trends", "--set", "window"], "is given as KEY=VALUE, not 'window'"),
        (["run", "trends", "--to-parquet", "x"], "is for jobs of your own"),
        (["runs", "--store", "a", "--data-dir", "b"], "give --data-dir or --store, not both"),
        (["expire", "--older-than", "soon"], "a time is a number with s, min, h, d or w"),
        (["expire", "--older-than", "1d"], "confirmation needs a terminal; pass --yes"),
    ],
)
def test_wrong_use(arguments: list[str], words: str) -> None:
    """Wrong use is told apart by its exit code, and said in a sentence."""
    code, out, err = here(*arguments)
    assert code == errors.USAGE
    assert words in " ".join(err.replace("│", " ").split())
    assert out == ""


def test_spark_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra there is advice."""
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *rest: None if name == "pyspark" else find_spec(name, *rest)
    )
    for arguments in (["run", "trends"], ["shell"], ["jobs"], ["compact"]):
        code, _, err = here(*arguments)
        advice = "Spark is not installed: install it with: pip install 'nuncius[spark]'"
        assert (code, err) == (errors.FAILED, advice)


def test_spark_does_not_start(dsn: str, tmp_path: Path) -> None:
    """When Java does not do what Spark wants, our last word on it is one line."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n[ $1 = -version ] && echo 'openjdk version \"17.0.1\"' >&2 || exit 1\n")
    java.chmod(0o755)
    done = nuncius("shell", "--store", dsn, env=os.environ | {"JAVA_HOME": str(tmp_path)}, input="")
    assert done.returncode == errors.FAILED
    assert spoken(done.stderr)[-1] == (
        "nuncius: Spark does not start: Java gateway process exited before sending its port number."
    )
    assert "Traceback" not in done.stderr


def test_summaries(capsys: pytest.CaptureFixture[str]) -> None:
    """Facts stand below each other, lists of them a line each, and nothing acts on the terminal."""
    facts: dict[str, object] = {"faults": 1234, "findings": ["a\x1b[2J", "b"], "more": {"x": [1]}}
    pipeline_show.show_summary(Job("audit", "", _nothing), Summary(5, 0, facts), False, Format.TABLE)
    assert capsys.readouterr().out.splitlines() == [
        "job           audit",
        "state         done",
        "rows read     5",
        "rows written  0",
        "faults        1,234",
        'more          {"x":[1]}',
        "",
        "findings",
        "  a\\x1b[2J",
        "  b",
    ]


def _nothing(_: Context) -> Summary:
    return Summary()


def test_a_second_signal() -> None:
    """The first signal asks a run to end, the second ends it; afterwards signals do what they did before."""
    before = signal.getsignal(signal.SIGTERM)
    context = Context(None, "", follow=True)  # type: ignore[arg-type]
    with pipeline_run.stopped_by_signals(context):
        os.kill(os.getpid(), signal.SIGTERM)
        assert context.stopping.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_master_that_is_none(dsn: str) -> None:
    """A master that Spark would not understand is refused before it starts."""
    code, _, err = here("run", "trends", "--topic", "t", "--store", dsn, "--master", "moon://landing")
    assert (code, err) == (
        errors.USAGE,
        "a master is local, local[2], local[*], spark://HOST:PORT or yarn, not 'moon://landing'",
    )


def test_looking_after_the_lake(dsn: str, tmp_path: Path) -> None:
    """The lake that the store knows is compacted, and what is old in it is thrown away."""
    code, _, err = here("compact", "--store", dsn)
    assert (code, err) == (errors.USAGE, "there is no lake yet: nuncius pipeline run archive makes it")
    lake = Lake(str(tmp_path / "lake"))
    put(lake, 0, 20, size=5)
    sql(dsn, "insert into nuncius.lakes (lake_name, location) values ('main', $1)", lake.location)
    code, out, err = here("compact", "--store", dsn)
    assert (code, err) == (0, "")
    assert out.startswith("4 files became 1, ")
    _, out, _ = here("compact", "--store", dsn, "-o", "json")
    assert json.loads(out)["files_before"] == 0
    assert value(dsn, "select to_timestamp($1::bigint / 1000000) < now() - interval '30 days'", BEGINNING)
    code, out, err = here("expire", "--older-than", "30d", "--yes", "--store", dsn)
    assert (code, err) == (0, "")
    assert out.startswith("20 entries are gone, 1 files of ")
    _, out, _ = here("expire", "--older-than", "30d", "--yes", "--store", dsn, "-o", "json")
    assert json.loads(out)["entries"] == 0


def test_a_fresh_data_directory(data_dir: Path) -> None:
    """A command makes its store like a node does, and stops it when nobody else uses it."""
    assert here("runs", "--data-dir", str(data_dir), "-o", "json")[1] == "[]\n"
    assert embedded.running(data_dir) is None
