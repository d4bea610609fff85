"""What is said about a run besides its figures."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from nuncius.bench.result import Goal, Processors, Result


def shown(result: Result) -> str:
    console = Console(file=StringIO(), width=200)
    result.show(console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_host_with_little_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that the host gave to others is in the file and below the table: nobody trusts such figures."""
    result = Result("x", (Goal("y", at_least=5000),), {"y": 2000.0}, begun=Processors(busy=10, stolen=1))
    monkeypatch.setattr(Processors, "now", classmethod(lambda cls: cls(busy=30, stolen=7)))
    assert "gave 30% of the processor time to others" in shown(result)
    result.write(tmp_path / "file")
    assert json.loads((tmp_path / "file").read_text())["machine"]["stolen"] == 0.3


def test_a_host_with_enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said where nothing was taken, nor where no time has passed."""
    monkeypatch.setattr(Processors, "now", classmethod(lambda cls: cls(busy=30, stolen=7)))
    assert "gave" not in shown(Result("x", begun=Processors(busy=10, stolen=7)))
    assert Processors.now().stolen_until(Processors.now()) == 0


def test_what_the_machine_says() -> None:
    """The clock of the processors runs on."""
    before = Processors.now()
    while Processors.now().busy == before.busy:
        pass
    assert 0 <= before.stolen_until(Processors.now()) <= 1
