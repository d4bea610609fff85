"""Runs all tests in groups, several at a time: most wait, for PostgreSQL, for nodes, Spark or a browser.

    python tests/groups.py [--quick] [pytest's arguments]

The output of a group is printed when the group has ended.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fix_quick import LEFT_OUT

ROOT = Path(__file__).parent.parent
# By duration, the longest first, so that all end at about the same time. The rest is in the group `tests`.
GROUPS = (
    "tests/crash",
    "tests/pipeline/jobs",
    "tests/cli",
    "tests/pipeline",
    "tests/console",
    "tests/doors/test_memory.py",
    "tests/bench tests/docs",
    "tests/doors",
    "tests/doors/tribbler tests/doors/zeromq",
    "tests/doors/stomp",
    "tests/store",
    "tests/doors/http",
    "tests/cluster",
    "tests/broker",
    "tests/client",
    "tests/doors/telesto",
    "tests",
)
AT_A_TIME = 1 + 2 * (os.cpu_count() or 1)
NOTHING_COLLECTED = 5


def without_the_others(group: str) -> Iterator[str]:
    """The arguments for a group: its folders, without the folders in them that belong to other groups."""
    others = {other for each in GROUPS for other in each.split()}
    for folder in group.split():
        yield folder
        yield from (f"--ignore={other}" for other in sorted(others) if other.startswith(f"{folder}/"))


def run(group: str, arguments: list[str]) -> int:
    """Run a group, print what it said, and return the exit code of pytest."""
    command = ["-m", "pytest", *without_the_others(group), *arguments]
    if "--quick" not in arguments:
        command = ["-m", "coverage", "run", *command]
    before = time.monotonic()
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    heading = f"\n== {group} ({time.monotonic() - before:.0f} s)\n".encode()
    sys.stdout.buffer.write(heading + done.stdout + done.stderr)
    sys.stdout.buffer.flush()
    return 0 if done.returncode == NOTHING_COLLECTED else done.returncode


def is_left_out(group: str) -> bool:
    """Whether --quick leaves out all tests of a group."""
    left_out = tuple(f"tests/{path}" for path in LEFT_OUT)
    return all(f"{path}/".startswith(left_out) for path in group.split())


def main(arguments: list[str]) -> int:
    groups = [group for group in GROUPS if "--quick" not in arguments or not is_left_out(group)]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        codes = list(pool.map(lambda group: run(group, arguments), groups))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
