"""Numbers, sizes, times and bodies as the pages show them."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nuncius.broker.errors import InvalidInput
from nuncius.broker.model import Retention
from nuncius.broker.observe.facts import Overview
from nuncius.broker.observe.facts_page import Wish
from nuncius.broker.observe.findings import problems
from nuncius.cli.app import build
from nuncius.console import pages
from nuncius.console.leases import in_words
from nuncius.console.pages.topics import kept
from nuncius.console.parts import bodies, words
from nuncius.console.parts.publishing import parse_headers
from nuncius.console.parts.ring import MIDDLE, places_of, point
from nuncius.console.parts.svg import points
from nuncius.console.parts.table import Column, wished
from nuncius.console.rates import REMEMBERED, CounterRates

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_numbers_and_sizes() -> None:
    """Thousands are set apart, sizes have one unit, what is not known is a dash."""
    assert words.number(1234567) == "1,234,567"
    assert words.number(10_000, is_exact=False) == "10,000+"
    assert [words.size(n) for n in (0, 999, 1000, 15_300, 250_000, 3e9)] == [
        "0 B",
        "999 B",
        "1.0 KB",
        "15.3 KB",
        "250 KB",
        "3.0 GB",
    ]
    assert [words.rate(n) for n in (0, 0.25, 12.6)] == ["0/s", "0.2/s", "12/s"]
    assert {words.number(None), words.size(None), words.rate(None), words.seconds(None)} == {words.NONE}
    assert {words.age(None), words.time(None)} == {words.NONE}
    assert (words.plural(1, "message"), words.plural(2, "process", "es")) == ("1 message", "2 processes")


@pytest.mark.parametrize(
    ("passed", "text"),
    [(0.2, "now"), (3.9, "3 s"), (61, "1 min 1 s"), (3600, "1 h"), (90_000, "1 d 1 h")],
)
def test_ages(passed: float, text: str) -> None:
    """An age has at most two units."""
    assert words.age(NOW - timedelta(seconds=passed), NOW) == text
    assert words.ago(NOW - timedelta(seconds=passed), NOW) == (text if text == "now" else f"{text} ago")


def test_durations() -> None:
    """Short ones are told more exactly."""
    assert [words.seconds(n) for n in (0.0015, 0.25, 1.5, 42)] == ["1.5 ms", "250 ms", "1.5 s", "42 s"]


def test_times() -> None:
    """Times are in UTC, when shown and when typed; what is none is none."""
    assert words.time(NOW) == "2026-01-31 12:00:00.000Z"
    assert words.parse_time(" 2026-01-31 12:00 ") == NOW
    assert words.parse_time("2026-01-31T13:00+01:00") == NOW
    assert words.parse_time("noon") is None
    assert words.parse_time("9999-12-31T23:59-08:00") is None


def test_leases_in_words() -> None:
    """Those that are over are none."""
    assert in_words(None, NOW) == in_words(NOW, NOW) == "No lease of its keys is out."
    assert in_words(NOW + timedelta(seconds=5), NOW).endswith("until 2026-01-31 12:00:05 UTC.")


def test_retention_in_words() -> None:
    """Each of the four."""
    assert kept(Retention()) == "unlimited"
    assert kept(Retention("subscribers")) == "until all subscribers have it"
    assert kept(Retention("time", seconds=7200)) == "for 2 h"
    assert kept(Retention("size", bytes=10**9)) == "up to 1.0 GB a partition"


def test_bodies_are_text_json_or_bytes() -> None:
    """Each view shows what it can, and says None or shows marks for what it cannot."""
    assert bodies.as_json(b'{"a": [1, "\xc3\xa4"]}') == '{\n  "a": [\n    1,\n    "ä"\n  ]\n}'
    assert bodies.as_json(b"{") is None
    assert bodies.as_json(b"[" * 10_000) is None
    assert bodies.as_json(b'"' + b"x" * bodies.SHOWN_BYTES + b'"') is None
    assert bodies.as_hex(b"Az\x00\xff") == f"00000000  41 7a 00 ff{' ' * 38}Az.."
    assert (bodies.is_text(b"a\nb"), bodies.is_text(b"\x00"), bodies.is_text(b"\xff")) == (True, False, False)
    assert bodies.as_text(b"\x7fa\nb\xff") == "␡a\nb\N{REPLACEMENT CHARACTER}"
    assert len(bodies.as_text(b"x" * 10**6)) == bodies.SHOWN_BYTES


def test_previews_are_one_short_line() -> None:
    """Line ends are blanks; what was cut says so, without the half of a character."""
    assert bodies.preview(b"a\nb", 3) == "a b"
    assert bodies.preview("ä".encode()[:1], 2) == "…"
    assert bodies.preview(b"x" * 200, 200) == "x" * bodies.PREVIEW_CHARACTERS + "…"


def test_file_names_are_harmless() -> None:
    """Nothing of a queue's name leads out of the downloads."""
    assert bodies.file_name("../a b/ä", 7) == "_a_b_ä-7.bin"


def test_headers_are_typed_a_line_each() -> None:
    """Values may have colons; a line without one is refused."""
    assert parse_headers("a: 1\n\n b:x:y \n") == {"a": "1", "b": "x:y"}
    with pytest.raises(InvalidInput, match="name: value"):
        parse_headers("nonsense")


def test_rates_come_from_two_looks() -> None:
    """The first look makes none, one that follows at once changes nothing, a count that fell began anew."""
    rates = CounterRates()
    assert rates.of("a", 10, 1.0) is None
    assert rates.of("a", 30, 3.0) == 10
    assert rates.of("a", 31, 3.1) == 10
    assert rates.of("a", 0, 5.0) == 0
    for n in range(REMEMBERED):
        rates.of(str(n), 0, 6.0)
    assert rates.of("a", 5, 7.0) is None


def test_what_a_browser_wishes_is_not_trusted() -> None:
    """Unknown orders, sizes and pages become what can be had."""
    columns = (Column("name", "Name", "name"), Column("size", "Size"))
    old = Wish("name", search="x", limit=20)
    asked = {"sortBy": "name", "descending": True, "page": 3, "rowsPerPage": 10}
    assert wished(old, columns, asked) == Wish("name", True, "x", 20, 10)
    asked = {"sortBy": "size; drop table", "page": -4, "rowsPerPage": 10**9}
    assert wished(old, columns, asked) == Wish("name", False, "x", 0, 100)
    assert wished(old, columns, {"page": 10**9, "rowsPerPage": "all"}) == Wish(
        "name", False, "x", 10_000, 100
    )


def test_ages_are_sorted_as_they_are_shown() -> None:
    """The oldest has the greatest age, whatever the store sorts by; of numbers the largest come first."""
    columns = [Column("age", "Age", "arrived", reverse=True, number=True)]
    asked = {"sortBy": "age", "descending": True, "page": 1, "rowsPerPage": 10}
    assert wished(Wish(), columns, asked) == Wish("arrived", False, "", 0, 10)
    assert wished(Wish(), columns, asked | {"descending": False}) == Wish("arrived", True, "", 0, 10)


def test_lines_and_rings_have_their_places() -> None:
    """The highest value is at the top, zero at the bottom; half the circle is opposite its beginning."""
    assert points([0.0, 2.0, 1.0], 3, 20) == "0,19.0 1,1.0 2,10.0"
    assert points([], 3, 20) == ""
    [one] = places_of([{"place": 0, "node": "a"}])
    assert one.share == 1.0
    shares = [each.share for each in places_of([{"place": 2**30, "node": "b"}, {"place": 0, "node": "a"}])]
    assert shares == [0.75, 0.25]
    x, y = point(2**31, 100)
    assert (round(x), round(y)) == (MIDDLE, MIDDLE + 100)


def test_commands_that_pages_name() -> None:
    """Every command that a page names exists."""
    named = set()
    for page in Path(pages.__file__).parent.glob("*.py"):
        named |= set(re.findall(r"nuncius ((?:pipeline|queue|topic) [a-z]+)", page.read_text("utf-8")))
    assert named == {"pipeline jobs", "queue create"}
    for command in named:
        assert CliRunner().invoke(build(), [*command.split(), "--help"]).exit_code == 0, command


def test_alarms_agree_with_cards() -> None:
    """An alarm writes a number as the card beside it does."""
    overview = Overview(0, 0, 0, 0, 0, 1_200_000, 0, 36, 1142, 0, 0, 0, 0, NOW)
    texts = [each.detail for each in problems(overview.findings())]
    assert texts == [
        f"{words.number(1142)} dead-lettered messages",
        f"{words.number(36)} messages awaiting redelivery",
        f"highest lag of a subscription: {words.number(1_200_000)} messages",
    ]
