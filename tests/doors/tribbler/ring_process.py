"""Nodes of a ring in processes of their own, started as the course starts its servers."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from nuncius.testing import free_port


class RingProcess:
    """`nuncius tribbler` in a directory; it ends when we do."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._directory = directory
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.ready: dict[str, Any] = {}

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def start(self) -> "RingProcess":
        environment = {name: value for name, value in os.environ.items() if name != "NUNCIUS_DATA_DIR"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "nuncius", "tribbler", f"-port={self.port}", "-on-leash", *self._options],
            cwd=self._directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the node did not start"
        self.ready = msgspec.json.decode(line)
        assert self.ready["ports"]["tribbler"] == self.port
        return self

    def kill(self) -> None:
        """As a power failure of the process would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._let_go()

    def stop(self) -> int:
        """In order; answers with the exit code."""
        if self._process is None:
            return 0
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(30)
        self._let_go()
        return code

    def _let_go(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.wait(30)
        self._process.stdin.close()
        self._process.stdout.close()
        self._process = None
