"""docs/tribbler.md says what is."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from docs.examples import ROOT, Example, compare, steps
from nuncius import testing

PAGE = ROOT / "docs" / "tribbler.md"
PORTS = ("9009", "9010", "9011", "9012")
_BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\n)?^```(bash|py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Session:
    """One reader at a terminal, whose nodes listen on other ports than the page says."""

    def __init__(self, directory: Path, stack: contextlib.ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._ports = {port: str(testing.free_port()) for port in PORTS}
        launcher = directory / "nuncius"
        launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nuncius "$@"\n')
        launcher.chmod(0o755)
        self._environment = os.environ | {
            "NUNCIUS_TRIBBLER_NODE": f"localhost:{self._ports['9009']}",
            "PYTHONWARNINGS": "error",
        }
        self._environment.pop("NUNCIUS_DATA_DIR", None)

    def here(self, text: str) -> str:
        return re.sub(r"\b90(09|10|11|12)\b", lambda found: self._ports[found[0]], text)

    def start(self, command: str) -> None:
        """A node in the background; it is there when it says so."""
        words = [*self.here(command).removesuffix("&").split()[1:], "-on-leash"]
        node = self._stack.enter_context(_node([sys.executable, "-m", "nuncius", *words], self._directory))
        assert node.stdout is not None
        assert node.stdout.readline(), command

    def run(self, command: list[str]) -> list[str]:
        done = subprocess.run(
            command,
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout)
        return done.stdout.splitlines()


@contextlib.contextmanager
def _node(command: list[str], directory: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {name: value for name, value in os.environ.items() if name != "NUNCIUS_DATA_DIR"}
    process = subprocess.Popen(
        command, cwd=directory, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.communicate(timeout=300)  # which ends its stdin


def test_the_session_runs() -> None:
    """The page's commands run, in order, and print what their comments say."""
    blocks = [found.groups() for found in _BLOCK.finditer(PAGE.read_text("utf-8"))]
    assert [(bool(left_out), language) for left_out, language, _ in blocks] == [
        (False, "bash"),
        (False, "bash"),
        (False, "py"),
        (False, "bash"),
        (True, "bash"),
    ]
    with tempfile.TemporaryDirectory(prefix="nun-") as directory, contextlib.ExitStack() as stack:
        session = Session(Path(directory), stack)
        for left_out, language, block in blocks:
            example = Example(PAGE, 0, language, block)
            if left_out:
                continue
            if language == "py":
                printed = session.run([sys.executable, "-c", session.here(block)])
                expected = [line[2:] for line in block.splitlines() if line.startswith("# ")]
                compare(example, "the block", printed, expected)
                continue
            for command, expected in steps(block, "#"):
                if command.endswith("&"):
                    session.start(command)
                else:
                    printed = session.run(["/bin/sh", "-c", session.here(command)])
                    compare(example, command, printed, expected)
