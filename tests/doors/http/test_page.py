"""docs/doors/http.md says what is."""

import contextlib
import io
import re
from pathlib import Path

from doors.http.peer import node_in_a_thread
from nuncius.broker.limits import Limits
from nuncius.doors.http import identity
from nuncius.doors.http.v1 import leases as v1_leases
from nuncius.doors.http.v1 import model as v1_model
from nuncius.doors.http.v1.routes import OPERATIONS
from nuncius.node.node import NodeSettings

PAGE = Path(__file__).parents[3] / "docs" / "doors" / "http.md"


def test_the_session_runs(dsn: str) -> None:
    """The page's session runs and prints what its comments say."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    comments = re.search(r"(?:^# .*\n)+\Z", block, re.MULTILINE)
    assert comments is not None
    printed = io.StringIO()
    with node_in_a_thread(dsn) as port, contextlib.redirect_stdout(printed):
        exec(block.replace("5000", str(port)), {})  # noqa: S102  (our own page)
    assert printed.getvalue().splitlines() == [line.removeprefix("# ") for line in comments[0].splitlines()]


def test_the_numbers_are_current() -> None:
    """Those on the page are those of the program."""
    page = PAGE.read_text("utf-8")
    settings, limits = NodeSettings("dsn"), Limits()
    assert f"`--partition-threshold`, {settings.partition_threshold:,}" in page
    assert settings.inactive_after == 300
    assert f"`--max-body`, {limits.max_body >> 20} MB" in page
    assert f"`--max-batch`, {limits.max_batch:,}" in page
    assert f"{identity.MAX_KEY} visible ASCII" in page
    assert f"| a long poll | {v1_model.MAX_WAIT:g} seconds |" in page
    assert f"| a lease | {v1_leases.MAX_SECONDS:,} seconds" in page
    assert f"`seconds`, {v1_leases.Leasing().seconds:g} unless you say otherwise" in page


def test_nothing_is_left_out() -> None:
    """Every kind of operation of ours under /v1 is mentioned, at least by the last word of its path."""
    page = PAGE.read_text("utf-8")
    for operation in OPERATIONS:
        if operation.tag in ("topics", "queues", "health"):
            words = [word for word in operation.path.split("/") if word and not word.startswith("{")]
            assert words[-1] in page, operation.path
