"""A real Spark cluster on this machine: a master and a worker on loopback, from PySpark's own files."""

import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyspark

from fix_coverage import CONFIG

HOME = Path(pyspark.__file__).parent
PATIENCE = 300.0
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"

# For sessions on it: one executor, which does two tasks at a time.
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.executor.extraJavaOptions": _JVM,
    "spark.ui.enabled": "false",
}


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Looks until the condition holds, and answers with what it said."""
    pause = threading.Event()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := condition():
            return result
        pause.wait(0.05)
    raise TimeoutError(f"{what} has not happened within {seconds:g} seconds")


@dataclass(frozen=True, slots=True)
class Cluster:
    url: str
    worker: psutil.Process

    def executors(self) -> list[psutil.Process]:
        """The executors that run now, of all applications."""
        return [child for child in self.worker.children() if _is_executor(child)]

    def kill_executors(self) -> None:
        """Ends all executors as `kill -9` does, and returns when they are gone. The worker starts others."""
        running = self.executors()
        for executor in running:
            executor.kill()
        psutil.wait_procs(running, timeout=PATIENCE)


def _is_executor(process: psutil.Process) -> bool:
    try:
        return any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
    except psutil.Error:
        return False


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster for as long as the context lasts; afterwards no process of it is left."""
    directory = Path(tempfile.mkdtemp(prefix="nun-spark-"))
    started: list[psutil.Popen] = []
    try:
        master = _daemon(directory / "master.log", "master.Master", "--webui-port", "0", "--port", "0")
        started.append(master)
        url = until(lambda: _found(directory / "master.log", _MASTER), "the master's start")
        place = ("--work-dir", str(directory / "worker"), "--cores", "2", "--memory", "1g")
        log = directory / "worker.log"
        worker = _daemon(log, "worker.Worker", "--webui-port", "0", *place, url)
        started.append(worker)
        until(lambda: _REGISTERED in log.read_text(), "the worker's registration")
        yield Cluster(url, worker)
    finally:
        for process in started:
            kill_tree(process)
        shutil.rmtree(directory, ignore_errors=True)


def _daemon(log: Path, name: str, *arguments: str) -> psutil.Popen:
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "128m",
        "SPARK_DAEMON_JAVA_OPTS": _JVM,
        "PYSPARK_PYTHON": sys.executable,
    }
    environment.pop(CONFIG, None)
    with log.open("wb") as out:
        return psutil.Popen(
            [
                HOME / "bin" / "spark-class",
                f"org.apache.spark.deploy.{name}",
                "--host",
                "127.0.0.1",
                *arguments,
            ],
            stdout=out,
            stderr=out,
            env=environment,
        )


def _found(log: Path, pattern: re.Pattern[str]) -> str | None:
    match = pattern.search(log.read_text())
    return match[1] if match else None


def kill_tree(process: psutil.Process) -> None:
    """Ends a process and everything it started, all at once."""
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    psutil.wait_procs(family, timeout=PATIENCE)


class Driver:
    """A driver in a process of its own, which can be killed: a module of the tests, run as a program."""

    def __init__(self, log: Path, module: str, *arguments: str) -> None:
        self._log = log
        tests = str(Path(__file__).parents[1])
        with log.open("ab") as out:
            self._process = psutil.Popen(
                [sys.executable, "-m", module, *arguments],
                stdout=out,
                stderr=out,
                env=os.environ | {"PYTHONPATH": tests},
            )

    @property
    def words(self) -> str:
        """What it has said so far."""
        return self._log.read_text()

    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """Ends the driver, its JVM and its workers as `kill -9` does."""
        kill_tree(self._process)

    def wait(self, seconds: float = 240) -> int:
        return int(self._process.wait(seconds))
