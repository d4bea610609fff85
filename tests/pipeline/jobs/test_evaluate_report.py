"""The report of an evaluation: its charts, its page, and the same as JSON."""

import json
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from nuncius.pipeline.evaluation import charts, report
from nuncius.pipeline.evaluation.charts import Bar, Point, number, ticks
from nuncius.pipeline.evaluation.report import EvaluationSettings, Results, as_json, render

AXES: dict[str, Any] = {"x_label": "clients", "y_label": "ms"}


def drawing(chart: str) -> ET.Element:
    """The SVG of a chart, which has to be well-formed."""
    svg = ET.fromstring(chart).find("svg")  # noqa: S314 - our own
    assert svg is not None
    return svg


def places(element: ET.Element | None) -> list[tuple[float, float]]:
    assert element is not None
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in element.attrib["points"].split())]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0, 0.3, [0, 0.1, 0.2, 0.3]),
        (0, 47, [0, 10, 20, 30, 40]),
        (0, 1250, [0, 250, 500, 750, 1000, 1250]),
        (3, 3, [3]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    """Axes are marked at round numbers within their range."""
    assert ticks(low, high) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (1234567, "1,234,567"), (100, "100"), (12.34, "12.3"), (2.5, "2.5"), (0.00123456, "0.00123")],
)
def test_figures_are_short(value: float, expected: str) -> None:
    """A figure has three digits that say something."""
    assert number(value) == expected


def test_a_line_with_its_band() -> None:
    """Points lie where the scales put them, and the band is as high as the intervals."""
    points = [Point(0, 10, 2), Point(5, 20, 5), Point(10, 15, 5)]
    svg = drawing(charts.line(points, title="t", **AXES))
    left, right = charts.LEFT, charts.WIDTH - charts.RIGHT
    bottom, height = charts.HEIGHT - charts.BOTTOM, charts.HEIGHT - charts.BOTTOM - charts.TOP

    def y(value: float) -> Any:  # the axis goes from 0 to 25
        return pytest.approx(bottom - value / 25 * height, abs=0.06)

    x = [left, pytest.approx((left + right) / 2, abs=0.06), right]
    assert places(svg.find("polyline")) == [(x[0], y(10)), (x[1], y(20)), (x[2], y(15))]
    band = places(svg.find("polygon"))
    assert band == [(x[0], y(12)), (x[1], y(25)), (x[2], y(20)), (x[2], y(10)), (x[1], y(15)), (x[0], y(8))]
    tips = [tip.text for tip in svg.iterfind("circle/title")]
    assert tips == ["0 clients: 10 ± 2", "5 clients: 20 ± 5", "10 clients: 15 ± 5"]
    assert svg.attrib["aria-label"] == "t"


def test_lines_without_much() -> None:
    """One point, many points, no spread, and nothing but zeros can be drawn."""
    (dot,) = drawing(charts.line([Point(3, 7)], title="t", **AXES)).iterfind("circle")
    assert dot.attrib["cx"] == f"{(charts.LEFT + charts.WIDTH - charts.RIGHT) / 2:.1f}"
    long = drawing(charts.line([Point(n, n) for n in range(100)], title="t", **AXES))
    assert long.find("circle") is None
    assert len(places(long.find("polyline"))) == 100
    flat = drawing(charts.line([Point(0, 0), Point(1, 0)], title="t", level=Point(0, 0), **AXES))
    assert {at for _, at in places(flat.find("polyline"))} == {charts.HEIGHT - charts.BOTTOM}


def test_a_histogram() -> None:
    """Bars are as high as their amounts and lie on a logarithmic scale, which may be longer than they are."""
    bars = [Bar(1, 10, 40), Bar(10, 100, 20)]
    svg = drawing(charts.histogram(bars, title="t", **AXES))
    first, second = svg.iterfind("rect")
    assert float(first.attrib["height"]) == pytest.approx(2 * float(second.attrib["height"]), abs=0.1)
    assert float(first.attrib["width"]) == pytest.approx(float(second.attrib["width"]))
    assert [tip.text for tip in svg.iterfind("rect/title")] == [
        "1 to 10 clients: 40",
        "10 to 100 clients: 20",
    ]
    longer = drawing(charts.histogram(bars, title="t", span=(1, 10_000), **AXES))
    third = next(longer.iterfind("rect"))
    assert float(third.attrib["width"]) == pytest.approx(float(first.attrib["width"]) / 2, abs=1)


def test_stacked_shares() -> None:
    """A bar is filled by its parts, which are as wide as their shares."""
    rows = {"one": {"a": 0.25, "b": 0.75}, "other": {"a": 1.0, "b": 0.0}}
    svg = drawing(charts.stacked(rows, title="t"))
    bars = [bar for bar in svg.iterfind("rect") if bar.find("title") is not None]
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert widths[1] == pytest.approx(3 * widths[0], abs=0.1)
    assert widths[2] == pytest.approx(widths[0] + widths[1], abs=0.1)
    assert widths[3] == 0
    assert float(bars[1].attrib["x"]) == pytest.approx(float(bars[0].attrib["x"]) + widths[0], abs=0.1)


def run_of(step: str, **changes: Any) -> dict[str, Any]:
    means = {"requests_s": 100.0, "messages_s": 50.0, "response_ms": 2.0}
    spread = {f"{p}_ms": 4.0 for p in ("p50", "p90", "p95", "p99", "p999", "max")}
    amounts = {"requests": 1000, "messages": 500, "errors": 10, "buckets": 10, "seconds": 10.0}
    intervals = {f"{name}_ci": value / 10 for name, value in means.items()}
    return {"step": step, **amounts, **means, **intervals, **spread, **changes}


def results(*runs: dict[str, Any], **changes: Any) -> Results:
    steps = [run["step"] for run in runs]
    buckets = [
        {"step": step, "bucket": n, "at_s": float(n), "requests": 100, "response_ms": None if n == 3 else 2.0}
        for step in steps
        for n in range(10)
    ]
    bars = [
        {"step": step, "method": method, "low_ms": low, "high_ms": 10 * low, "requests": 5}
        for step in steps
        for method in (None, "PutMessage")
        for low in (0.1, 1.0)
    ]
    settings = EvaluationSettings("traces", 2.0, 2.0, 1.0, "client")
    methods = [run | {"method": "PutMessage"} for run in runs]
    fields = {"runs": runs, "buckets": buckets, "histogram": bars, "methods": methods, **changes}
    return Results(settings, **fields)


class Page(HTMLParser):
    """The tags, the words and the tables of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.rows: list[list[str]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        self.words += data
        if self.tags and self.tags[-1] == "td" and data.strip():
            self.rows[-1][-1] += data


def test_a_page_of_one_run() -> None:
    """The figures are in the table, with their intervals; nothing has to be loaded from anywhere."""
    text = render(results(run_of("run")))
    shown = Page(text)
    assert ["run", "1,000", "100 ± 10", "50.0 ± 5.0", "1.0%", "2.00 ± 0.20", *["4.00"] * 6] in shown.rows
    assert {"script", "link", "img", "iframe"}.isdisjoint(shown.tags)
    assert not re.search(r"https?:|url\(|@import", text)
    assert "prefers-color-scheme: dark" in text
    assert "Over the run" in shown.words
    assert "Scalability" not in shown.words
    assert shown.tags.count("svg") == 4
    for chart in re.findall(r"<figure>.*?</figure>", text):
        assert drawing(chart).attrib["role"] == "img"


def test_a_page_of_a_series() -> None:
    """A series has charts over what was varied, and says where the most was reached."""
    runs = [run_of("clients_8"), run_of("clients_32", requests_s=250.0, requests_s_ci=None)]
    series = [
        run | {"parameter": "clients", "value": value, "speedup": speedup}
        for run, value, speedup in zip(runs, (8.0, 32.0), (1.0, 2.5), strict=True)
    ]
    shares = [
        {"step": run["step"], "phase": phase, "mean_ms": 1.0, "share": 0.5}
        for run in runs
        for phase in ("waiting", "database")
    ]
    shown = Page(render(results(*runs, series=series, shares=shares, left_out=["clients_64"])))
    assert "The most is 250 requests/s at 32 clients, 2.5 times as many as at 8." in shown.words
    assert ["32", "250", "2.50", "2.00 ± 0.20", "4.00"] in shown.rows
    assert ["clients_8", "1.00 (50.00%)", "1.00 (50.00%)"] in shown.rows
    assert "Too short to be measured: clients_64." in shown.words
    assert "Run clients_32" in shown.words


def test_names_cannot_break_the_page() -> None:
    """Whatever a directory or a method is called, it is text."""
    evil = "<script>alert(1)</script>"
    shown = Page(
        render(results(run_of(evil), shares=[{"step": evil, "phase": "p", "mean_ms": 1.0, "share": 1.0}]))
    )
    assert "script" not in shown.tags
    assert evil in shown.words


def test_nodes_alone_have_no_methods() -> None:
    """Without traces of clients, there are no messages and no methods to show."""
    shown = Page(render(results(run_of("run", messages=0, messages_s=0.0), methods=[])))
    assert shown.rows[1][3] == ""
    assert shown.tags.count("svg") == 3


def test_a_long_run_is_thinned() -> None:
    """A chart has no more points than can be seen; each shows the mean of those it stands for."""
    points = [Point(float(n), float(n % 2)) for n in range(2 * report.POINTS)]
    thinned = report._thinned(points)  # noqa: SLF001
    assert len(thinned) == report.POINTS
    assert {point.y for point in thinned} == {0.5}
    assert [point.x for point in thinned[:2]] == [0, 2]


def test_the_same_as_json() -> None:
    """Everything that is shown is in the document, and how it was made."""
    document = json.loads(json.dumps(as_json(results(run_of("run")))))
    assert document["settings"] == {
        "traces": "traces",
        "warmup": 2.0,
        "cooldown": 2.0,
        "bucket": 1.0,
        "side": "client",
    }
    assert document["runs"] == [run_of("run")]
    assert {"buckets", "histogram", "methods", "shares", "series", "left_out"} <= document.keys()
    assert "2 s after its first request" in document["method"]
