"""Zip files with compiled code: what Spark's Python workers start from."""

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from nuncius.pipeline import compiled

SOURCE = b"x = '' is ''\nvalue = 7\n"  # the compiler warns of it, and nobody needs to hear that


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "library.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("somewhere/__init__.py", SOURCE)
        made.writestr("somewhere/words.txt", "text")
    return path


def imported(archive: Path) -> list[str]:
    """Where another Python finds the package, and what is in it."""
    program = "import somewhere; print(somewhere.__file__, somewhere.value)"
    environment = {"PYTHONPATH": str(archive)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_compiled_code_is_added_and_used(archive: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Everything that was there stays, and Python loads the compiled form."""
    assert imported(archive) == [f"{archive}/somewhere/__init__.py", "7"]
    compiled.complete(archive)
    assert imported(archive) == [f"{archive}/somewhere/__init__.pyc", "7"]
    with zipfile.ZipFile(archive) as made:
        assert made.namelist() == [
            "somewhere/__init__.py",
            "somewhere/__init__.pyc",
            "somewhere/words.txt",
        ]
        assert made.read("somewhere/__init__.py") == SOURCE
    assert not recwarn.list


def test_once_is_enough(archive: Path) -> None:
    compiled.complete(archive)
    before = archive.stat()
    compiled.complete(archive)
    assert archive.stat() == before
    assert list(archive.parent.iterdir()) == [archive]


def test_another_python(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that cannot use the compiled form reads the source."""
    monkeypatch.setattr(importlib.util, "MAGIC_NUMBER", b"\0\0\r\n")
    compiled.complete(archive)
    assert imported(archive) == [f"{archive}/somewhere/__init__.py", "7"]


def test_the_installed_pyspark(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command finds the files of the PySpark it is run with; where there is none it has nothing to do."""
    library = tmp_path / "pyspark" / "python" / "lib"
    library.mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").touch()
    archive = archive.rename(library / "pyspark.zip")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    compiled.main()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    compiled.main()
    assert imported(archive)[0].endswith(".pyc")
