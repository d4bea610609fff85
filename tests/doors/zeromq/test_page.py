"""docs/doors/zeromq.md says what is."""

import os
import re
import subprocess
import sys
from pathlib import Path

from docs.examples import Example, compare, steps
from doors.zeromq.peer import node_in_a_thread

PAGE = Path(__file__).parents[3] / "docs" / "doors" / "zeromq.md"
PORT = "127.0.0.1:5555"


def test_the_sessions_run(dsn: str, tmp_path: Path) -> None:
    """The page's sessions run, in order, and print what their comments say."""
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert [language for language, _ in blocks] == ["python", "python", "sh", "python"]
    launcher = tmp_path / "nuncius"
    launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nuncius "$@"\n')
    launcher.chmod(0o755)
    with node_in_a_thread(dsn) as port:
        for language, block in blocks:
            example = Example(PAGE, 0, language, block)
            if language == "python":
                code = block.replace(PORT, f"127.0.0.1:{port}")
                expected = [line[2:] for line in block.splitlines() if line.startswith("# ")]
                printed = run([sys.executable, "-W", "error", "-c", code], tmp_path, port)
                compare(example, "the block", printed.splitlines(), expected)
                continue
            for command, expected in steps(block, "#"):
                printed = run(["/bin/sh", "-c", command], tmp_path, port)
                compare(example, command, printed.splitlines(), expected)


def run(command: list[str], directory: Path, port: int) -> str:
    environment = os.environ | {
        "NUNCIUS_ZEROMQ_URL": f"tcp://127.0.0.1:{port}",
        "XDG_STATE_HOME": str(directory / "state"),
        "PATH": f"{directory}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
