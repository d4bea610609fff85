"""docs/doors/stomp.md says what is."""

import contextlib
import io
import re
from pathlib import Path

from cli.commands import nuncius
from doors.stomp.threads import node_in_a_thread
from nuncius.doors.stomp import transactions
from nuncius.doors.stomp.frames.codec import FrameLimits
from nuncius.doors.stomp.subscriptions import subscribing

PAGE = Path(__file__).parents[3] / "docs" / "doors" / "stomp.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def expected(block: str) -> list[str]:
    """What a block prints stands in comments at its end."""
    comments = re.search(r"(?:^# .*\n)+\Z", block, re.MULTILINE)
    assert comments is not None
    return [line.removeprefix("# ") for line in comments[0].splitlines()]


def test_the_session_runs(dsn: str) -> None:
    """The page's session runs and prints what its comments say."""
    (block,) = blocks("python")
    printed = io.StringIO()
    with node_in_a_thread(dsn) as port, contextlib.redirect_stdout(printed):
        exec(block.replace("55664", str(port)), {})  # noqa: S102  (our own page)
    assert printed.getvalue().splitlines() == expected(block)


def test_the_reports_client_runs(dsn: str) -> None:
    """The page's command runs and prints what its comment says."""
    (block,) = blocks("sh")
    command, comment = block.splitlines()
    with node_in_a_thread(dsn) as port:
        done = nuncius(*command.replace("55664", str(port)).split()[1:])
    pattern = re.escape(comment.removeprefix("# ")).replace(re.escape("..."), ".*")
    assert re.fullmatch(pattern, done.stdout.strip())


def test_the_limits_are_current() -> None:
    """The numbers on the page are those of the program."""
    page = " ".join(PAGE.read_text("utf-8").split())  # however its lines are broken
    limits = FrameLimits()
    assert f"| {limits.max_headers}, of at most {limits.max_line >> 10} KB each" in page
    assert f"each and {limits.max_head >> 10} KB together" in page
    assert f"| subscriptions of a connection | {subscribing.MAX_SUBSCRIPTIONS:,} |" in page
    assert f"1 to {subscribing.MAX_PREFETCH:,}. Default {subscribing.QUEUE_PREFETCH} for queues" in page
    assert f", {subscribing.TOPIC_PREFETCH:,} for topics" in page
    assert f"may have {transactions.MAX_TRANSACTIONS} transactions" in page
    assert f"with {transactions.MAX_STEPS:,} steps and {transactions.MAX_BYTES >> 20} MB" in page
