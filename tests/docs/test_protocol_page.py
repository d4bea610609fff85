"""The tables in docs/protocol.md are those of the packets."""

import subprocess
import sys
from pathlib import Path

from nuncius.doors.native import documentation
from nuncius.wire.packets import ANSWERS, REQUESTS, ErrorCode

PAGE = Path(__file__).parent.parent.parent / "docs" / "protocol.md"


def test_the_page_is_current() -> None:
    """The committed page is what the declarations say; if not, run the module to write it anew."""
    page = PAGE.read_text("utf-8")
    assert documentation.fill_in(page) == page


def test_every_packet_is_in_a_table() -> None:
    """No packet and no error code is forgotten, and every request says what answers it."""
    tables = documentation.tables()
    for packet in REQUESTS + ANSWERS:
        assert f"| {packet.__name__} |" in tables
    assert set(documentation.ANSWERED_WITH) == set(REQUESTS)
    codes = {name: code for name, code in vars(ErrorCode).items() if name.isupper()}
    assert {name: code for code, name, _ in documentation.errors()} == codes


def test_the_module_writes_the_page(tmp_path: Path) -> None:
    """Run as a program, it fills the tables in and leaves the rest of the page alone."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n{documentation.BEGIN}\nold\n{documentation.END}\nafter\n")
    subprocess.run([sys.executable, "-m", documentation.__name__, str(page)], check=True, timeout=300)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert documentation.tables() in text
