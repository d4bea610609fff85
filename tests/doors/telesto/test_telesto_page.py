"""docs/doors/telesto.md says what is."""

import contextlib
import io
import re

from nuncius.doors.telesto.table import PACKETS, ErrorType
from telesto_page import PAGE, up_to_date
from telesto_thread import node_in_a_thread


def test_the_tables_are_current() -> None:
    """The page's tables are those that the table of packets makes."""
    page = PAGE.read_text("utf-8")
    assert up_to_date(page) == page
    assert all(packet.__name__ in page for packet in PACKETS)
    for error in ErrorType:
        assert f"| {error.value} | {error.name} |" in page


def test_the_sessions_run(dsn: str) -> None:
    """The page's sessions run, in order, and print what their comments say."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    with node_in_a_thread(dsn) as port:
        for block in blocks:
            expected = [line[2:] for line in block.splitlines() if line.startswith("# ")]
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(block.replace("9001", str(port)), {})  # noqa: S102  (our own page)
            assert printed.getvalue().splitlines() == expected
