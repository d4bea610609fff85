"""`nuncius demo` and `nuncius tour`: the first five minutes."""

import contextlib
import re
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import Request, urlopen

import pytest

from cli.commands import NUNCIUS, nuncius
from nuncius.cli import http
from nuncius.cli.commands.demo.demo import run_job
from nuncius.cli.commands.demo.story import NEWS, STEPS
from nuncius.node.program import SCRIPT, typed

SECONDS = 300.0


def test_demo(tmp_path: Path) -> None:
    """It names its directory, sends through every door, shows the same arriving everywhere, says where to
    look, and lives on until Ctrl-C, also when somebody sends its clients away; its node is gone afterwards. A
    directory that is in use is left alone."""
    place = tmp_path / "data"
    process = subprocess.Popen(
        [*NUNCIUS, "demo", "--no-spark", "--data-dir", str(place)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if "Messages keep coming" in line:
            break
    found = re.search(r"--http (\S+)", said)
    assert found is not None, said
    wait_for_life(found[1], 1)
    disconnect_everybody(found[1])
    wait_for_life(found[1], 6)
    process.send_signal(signal.SIGINT)
    rest, complaints = process.communicate(timeout=SECONDS)
    assert (process.returncode, complaints) == (0, "")
    assert "The node has stopped." in rest
    assert str(place) in said
    for step in STEPS:
        assert step.title in said
    for news in NEWS.values():
        assert news in said
    assert said.count("has all 5, in the same order") == 5
    assert "They are moons!" in said
    assert f"{found[1]}/console" in said
    assert f"NUNCIUS_HTTP={found[1]} " in said
    assert not (place / "postgres" / "postmaster.pid").exists()
    again = nuncius("demo", "--once", "--no-spark", "--data-dir", str(place))
    assert again.returncode == 1
    assert "is in use" in again.stderr


def disconnect_everybody(url: str) -> None:
    """As somebody would who plays with the console."""
    for each in http.get(url, "/v1/connections")["connections"]:
        request = Request(f"{url}/v1/connections/{each['id']}", method="DELETE")  # noqa: S310 - our node
        with contextlib.suppress(OSError):  # one of them is our own
            urlopen(request, timeout=SECONDS).close()  # noqa: S310


def wait_for_life(url: str, count: int) -> None:
    """Until more messages than that have come by themselves."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(http.NoHttpAnswer):  # there is no such topic yet
            topic = http.get(url, "/v1/topics/observations")
            if sum(each["next_offset"] for each in topic["partitions"]) > count:
                return
        time.sleep(0.05)
    raise AssertionError("nothing came")


def test_tour() -> None:
    """It explains every step, shows what happens, needs no input, and leaves nothing behind."""
    done = subprocess.run(
        [*NUNCIUS, "tour"],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for number, step in enumerate(STEPS, 1):
        assert f"Step {number} of {len(STEPS)}: {step.title}" in done.stdout
        assert f"try it: {step.try_it}" in done.stdout
    assert done.stdout.count("has all 5") == 5
    assert done.stdout.index("export NUNCIUS_URL=nuncius://127.0.0.1:") < done.stdout.index("try it: ")
    place = re.search(r"host=(\S+)&", done.stdout)
    assert place is not None
    assert not Path(place[1]).exists()


def test_commands_are_told_as_they_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout has its script, and no `nuncius` on the path."""
    monkeypatch.delenv(SCRIPT, raising=False)
    assert typed("nuncius put letters & nuncius top") == "nuncius put letters & nuncius top"
    monkeypatch.setenv(SCRIPT, "/somewhere/nuncius")
    assert typed("nuncius put letters & nuncius top") == "./nuncius put letters & ./nuncius top"


def test_a_job_that_cannot_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The demonstration says so, and goes on."""
    (tmp_path / "file").write_text("no directory")
    scene = cast("Any", SimpleNamespace(data_dir=tmp_path / "file"))
    run_job(scene, 8)
    said = capsys.readouterr().out
    assert "8. Spark digests the history" in said
    assert "goes on without it" in said


def test_an_installation_is_announced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the script of a checkout installs for the job is told, with how much it is, before it is there."""
    script = tmp_path / "nuncius"
    script.write_text("#!/bin/sh\necho 'nuncius: installing spark, once (about 640 MB)' >&2\necho done 7\n")
    script.chmod(0o755)
    monkeypatch.setenv(SCRIPT, str(script))
    run_job(cast("Any", SimpleNamespace(data_dir=tmp_path)), 8)
    said = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert said.index("installing spark, once (about 640 MB)") < said.index("done 7")
