"""The tables in docs/protocol.md are those of the packets."""

import protocol_page
from nuncius.wire.packets import ANSWERS, REQUESTS, ErrorCode


def test_the_page_is_current() -> None:
    """The committed page is what the declarations say; if not, run docs/generate/protocol_page.py."""
    page = protocol_page.PAGE.read_text("utf-8")
    assert protocol_page.up_to_date(page) == page


def test_every_packet_is_in_a_table() -> None:
    """No packet and no error code is forgotten, and every request says what answers it."""
    tables = protocol_page.tables()
    for packet in REQUESTS + ANSWERS:
        assert f"| {packet.__name__} |" in tables
    assert set(protocol_page.ANSWERED_WITH) == set(REQUESTS)
    codes = {name: code for name, code in vars(ErrorCode).items() if name.isupper()}
    assert {name: code for code, name, _ in protocol_page.errors()} == codes


def test_only_the_tables_are_rewritten() -> None:
    """The rest of the page stays as it is."""
    page = f"before\n{protocol_page.BEGIN}\nold\n{protocol_page.END}\nafter\n"
    new = protocol_page.up_to_date(page)
    assert new.startswith("before\n")
    assert new.endswith("after\n")
    assert protocol_page.tables() in new
