"""Examples in documentation pages: found, run, and compared with what the page says they print.

Every fenced block marked `python`, `sh` or `sql` is an example. What it prints stands in comments: in shell
and SQL right below the command or statement, in Python at the end of the block. `...` in such a comment
stands for anything, and alone on its line for any lines. The blocks of a page are run in order against one
broker.

A block below a comment `<!-- not run: reason -->` is left out.
"""

import asyncio
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from nuncius.testing import Broker

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PORT = "127.0.0.1:9001"  # in the pages; the broker of a test listens elsewhere
SECONDS = 600
JAVA_SAYS = "WARNING: Using incubator modules: jdk.incubator.vector"  # when Spark starts it

_BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\n)?^```(python|sh|sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Example:
    page: Path
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def examples(page: Path) -> list[Example]:
    """The blocks of a page that are to be run."""
    text = page.read_text("utf-8")
    return [
        Example(page, text[: found.start(3)].count("\n") + 1, found[2], found[3])
        for found in _BLOCK.finditer(text)
        if not found[1]
    ]


def run(example: Example, broker: Broker, directory: Path) -> None:
    """Runs an example; raises AssertionError when it fails or prints something else."""
    if example.language == "python":
        _python(example, broker, directory)
    elif example.language == "sh":
        _shell(example, broker, directory)
    else:
        asyncio.run(_sql(example, broker.dsn))


def compare(example: Example, step: str, printed: list[str], expected: list[str]) -> None:
    pattern = "\n".join(
        r"[\s\S]*" if line == "..." else re.escape(line).replace(re.escape("..."), ".*") for line in expected
    )
    assert re.fullmatch(pattern, "\n".join(printed)), (
        f"{example}: {step}\nprinted:  {printed}\nexpected: {expected}"
    )


def _environment(broker: Broker, directory: Path) -> dict[str, str]:
    return os.environ | {
        "NUNCIUS_URL": broker.url,
        "DSN": broker.dsn,
        "DATA": str(broker.data_dir),
        "HOME": str(directory),
        "COLUMNS": "200",
    }


def _python(example: Example, broker: Broker, directory: Path) -> None:
    code, expected = _trailing_comments(example.code)
    code = code.replace(PORT, f"127.0.0.1:{broker.port}").replace(
        '"127.0.0.1", 9001', f'"127.0.0.1", {broker.port}'
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=_environment(broker, directory),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{example}\n{done.stderr}"
    complaints = [line for line in done.stderr.splitlines() if line != JAVA_SAYS]
    assert not complaints, f"{example}\n{done.stderr}"
    compare(example, "the block", done.stdout.splitlines(), expected)


def _trailing_comments(code: str) -> tuple[str, list[str]]:
    lines = code.splitlines()
    end = len(lines)
    while end and lines[end - 1].startswith("#"):
        end -= 1
    return "\n".join(lines[:end]), [line.removeprefix("#").removeprefix(" ") for line in lines[end:]]


def steps(code: str, comment: str) -> list[tuple[str, list[str]]]:
    """Commands with the comments right below each. A comment after a blank line is only a comment."""
    found: list[tuple[str, list[str]]] = []
    pending: list[str] = []
    follows = False
    for line in code.splitlines():
        if line.startswith(comment):
            if follows:
                found[-1][1].append(line.removeprefix(comment).removeprefix(" "))
        elif not line.strip():
            follows = False
        else:
            pending.append(line)
            if _is_complete("\n".join(pending), comment):
                found.append(("\n".join(pending), []))
                pending = []
                follows = True
    assert not pending, f"{pending} has no end"
    return found


def _is_complete(text: str, comment: str) -> bool:
    if comment == "--":
        return text.rstrip().endswith(";") and text.count("$$") % 2 == 0
    return not text.endswith("\\")


def _shell(example: Example, broker: Broker, directory: Path) -> None:
    """All commands in one shell, with a mark after the output of each."""
    launcher = directory / "nuncius"
    launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nuncius "$@"\n')
    launcher.chmod(0o755)
    parts = steps(example.code, "#")
    script = "".join(f"{command}\necho '== {n}'\n" for n, (command, _) in enumerate(parts))
    done = subprocess.run(
        ["/bin/sh", "-e", "-c", script.replace(PORT, f"127.0.0.1:{broker.port}")],
        env=_environment(broker, directory),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    rest = done.stdout
    for n, (command, expected) in enumerate(parts):
        printed, mark, rest = rest.partition(f"== {n}\n")
        assert mark, f"{example}: {command} failed\n{printed}"
        compare(example, command, printed.splitlines(), expected)
    assert done.returncode == 0, f"{example}\n{done.stdout}"


async def _sql(example: Example, dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for statement, expected in steps(example.code, "--"):
            rows = await connection.fetch(statement)
            compare(example, statement, [_row(row) for row in rows], expected)
    finally:
        await connection.close()


def _row(row: asyncpg.Record) -> str:
    words = {None: "null", True: "true", False: "false"}
    return " | ".join(words[v] if v is None or isinstance(v, bool) else str(v) for v in row.values())
