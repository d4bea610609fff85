"""Nodes of a cluster in processes of their own, as a user starts them."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from nuncius.testing import free_port


class Process:
    """A node. Started again, it has the same port."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._arguments = arguments
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def begin(self) -> Self:
        """Starts it; `ready` waits until it is."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "nuncius",
                    "node",
                    "--on-leash",
                    f"--port={self.port}",
                    *self._arguments,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        return self

    def ready(self) -> Self:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log.read_text()[-2000:]
        assert json.loads(line)["ports"]["http"] == self.port
        return self

    def start(self) -> Self:
        return self.begin().ready()

    def freeze(self) -> None:
        """Stops it as a debugger would: it keeps its connections and says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
