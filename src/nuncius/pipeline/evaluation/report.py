"""The report of an evaluation: a self-contained page, and the same as JSON."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from nuncius.pipeline.evaluation import charts, page
from nuncius.pipeline.evaluation.charts import Bar, Point, digits, number

Row = dict[str, Any]
POINTS = 300  # of a line; more are merged

METHOD = (
    "A run is measured from {warmup} s after its first request to {cooldown} s before its last answer, in "
    "whole buckets of {bucket} s; a request counts in the bucket in which it was answered, and a bucket "
    "without any counts as zero. Rates are means over buckets; response times are over requests, at the "
    "{side}. Intervals (±, and the bands of charts) are 95 % confidence intervals of the mean with buckets "
    "as samples, taken as independent, by Student's t distribution (a table up to 30 degrees of freedom, "
    "beyond it an expansion that is right to four digits); for response times a bucket weighs as many "
    "requests as it has. Percentiles are exact, of times in whole "
    "microseconds, interpolated between neighbours. Histograms have ten buckets from each power of ten to "
    "the next."
)


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    traces: str
    warmup: float
    cooldown: float
    bucket: float
    side: str
    """The side that measured: "client" or "node"."""


@dataclass(frozen=True, slots=True)
class Results:
    """Rows of the frames in `figures`, in order."""

    settings: EvaluationSettings
    runs: Sequence[Row]
    buckets: Sequence[Row]
    histogram: Sequence[Row]
    methods: Sequence[Row] = field(default=())
    shares: Sequence[Row] = field(default=())
    series: Sequence[Row] = field(default=())
    left_out: Sequence[str] = field(default=())
    """Runs too short to be measured."""


def as_json(results: Results) -> dict[str, Any]:
    return {**asdict(results), "method": _method(results.settings)}


def render(results: Results) -> str:
    settings = results.settings
    parts = [
        page.heading(1, "Evaluation"),
        page.paragraph(f"{_runs(len(results.runs))} from traces in {settings.traces}", muted=True),
    ]
    if results.left_out:
        parts.append(page.paragraph(f"Too short to be measured: {', '.join(results.left_out)}."))
    parts += [page.heading(2, "Figures"), _figures(results.runs)]
    for parameter in dict.fromkeys(row["parameter"] for row in results.series):
        rows = [row for row in results.series if row["parameter"] == parameter]
        parts += _series(parameter, rows)
    if results.shares:
        parts += _phases(results.shares)
    for run in results.runs:
        parts.append(page.heading(2, "Over the run" if len(results.runs) == 1 else f"Run {run['step']}"))
        parts += _run(run, results)
    parts += [page.heading(2, "How the figures are made"), page.paragraph(_method(settings), muted=True)]
    return page.page("Evaluation", parts)


def _runs(number_of_runs: int) -> str:
    return "1 run" if number_of_runs == 1 else f"{number_of_runs} runs"


def _method(settings: EvaluationSettings) -> str:
    return METHOD.format(
        warmup=number(settings.warmup),
        cooldown=number(settings.cooldown),
        bucket=number(settings.bucket),
        side=settings.side,
    )


_TIMES = {"p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "p999": "p99.9", "max": "max"}
_HEADS = ("requests", "requests/s", "messages/s", "errors", "mean ms", *(f"{p} ms" for p in _TIMES.values()))


def _figures(rows: Iterable[Row], name: str = "step") -> str:
    return page.table(
        ["run" if name == "step" else name, *_HEADS],
        (
            [
                row[name],
                f"{row['requests']:,}",
                _mean(row, "requests_s"),
                _mean(row, "messages_s") if row["messages"] else "",
                f"{row['errors'] / row['requests']:.1%}",
                _mean(row, "response_ms"),
                *(_figure(row[f"{p}_ms"]) for p in _TIMES),
            ]
            for row in rows
        ),
    )


def _mean(row: Row, name: str) -> str:
    mean, spread = row[name], row[f"{name}_ci"]
    return _figure(mean) if spread is None else f"{_figure(mean)} ± {spread:,.{digits(mean)}f}"


def _figure(value: float) -> str:
    return f"{value:,.{digits(value)}f}"


def _series(parameter: str, rows: Sequence[Row]) -> list[str]:
    def chart(name: str, title: str, unit: str, colour: int) -> str:
        points = [Point(row["value"], row[name], row[f"{name}_ci"]) for row in rows]
        return charts.line(points, title=title, x_label=parameter, y_label=unit, colour=colour)

    drawn = [chart("requests_s", "Requests a second", "requests/s", 0)]
    if any(row["messages_s"] for row in rows):
        drawn.append(chart("messages_s", "Messages a second", "messages/s", 2))
    drawn.append(chart("response_ms", "Mean response time", "ms", 1))
    p99 = [Point(row["value"], row["p99_ms"]) for row in rows]
    tail = "Response time of the slowest hundredth (p99)"
    drawn.append(charts.line(p99, title=tail, x_label=parameter, y_label="ms", colour=1))
    best = max(rows, key=lambda row: row["requests_s"])
    first = rows[0]
    said = (
        f"The most is {_mean(best, 'requests_s')} requests/s at {number(best['value'])} {parameter}, "
        f"{number(best['speedup'] or 0)} times as many as at {number(first['value'])}."
    )
    heads = (parameter, "requests/s", "times the first", "response ms", "p99 ms")
    body = [
        (
            number(row["value"]),
            _mean(row, "requests_s"),
            f"{row['speedup'] or 0:.2f}",
            _mean(row, "response_ms"),
            _figure(row["p99_ms"]),
        )
        for row in rows
    ]
    return [
        page.heading(2, f"Scalability over {parameter}"),
        page.paragraph(said),
        page.charts(*drawn),
        page.table(heads, body),
    ]


def _phases(rows: Sequence[Row]) -> list[str]:
    runs: dict[str, dict[str, Row]] = {}
    for row in rows:
        runs.setdefault(row["step"], {})[row["phase"]] = row
    shares = {step: {phase: row["share"] for phase, row in phases.items()} for step, phases in runs.items()}
    names = list(next(iter(runs.values())))
    body = (
        [step, *(f"{_figure(phases[name]['mean_ms'])} ({phases[name]['share']:.2%})" for name in names)]
        for step, phases in runs.items()
    )
    return [
        page.heading(2, "Phases of a request in the node"),
        page.charts(charts.stacked(shares, title="Shares of the time in the node")),
        page.table(["run", *(f"{name}, ms" for name in names)], body),
    ]


def _run(run: Row, results: Results) -> list[str]:
    step = run["step"]
    buckets = [row for row in results.buckets if row["step"] == step]
    bars = [
        Bar(row["low_ms"], row["high_ms"], row["requests"])
        for row in results.histogram
        if row["step"] == step and row["method"] is None
    ]
    rate = Point(0, run["requests_s"], run["requests_s_ci"])
    size = results.settings.bucket
    rates = _thinned([Point(row["at_s"], row["requests"] / size) for row in buckets])
    times = _thinned(
        [Point(row["at_s"], row["response_ms"]) for row in buckets if row["response_ms"] is not None]
    )
    mean = Point(0, run["response_ms"], run["response_ms_ci"])
    label = "s since the warm-up"
    said = f"{run['requests']:,} requests in {number(run['seconds'])} s"
    methods = [row for row in results.methods if row["step"] == step]
    return [
        page.paragraph(f"{said}, {run['errors']:,} of them answered with an error.", muted=True),
        page.charts(
            charts.line(
                rates, title="Requests a second", x_label=label, y_label="requests/s", level=rate, colour=0
            ),
            charts.line(times, title="Mean response time", x_label=label, y_label="ms", level=mean, colour=1),
            charts.histogram(bars, title="Response times", x_label="ms", y_label="requests", colour=1),
            *(_method_histogram(row, results.histogram, (bars[0].low, bars[-1].high)) for row in methods),
        ),
        *([_figures(methods, "method")] if methods else []),
    ]


def _method_histogram(method: Row, histogram: Sequence[Row], span: tuple[float, float]) -> str:
    bars = [
        Bar(row["low_ms"], row["high_ms"], row["requests"])
        for row in histogram
        if (row["step"], row["method"]) == (method["step"], method["method"])
    ]
    title = f"Response times of {method['method']}"
    return charts.histogram(bars, title=title, x_label="ms", y_label="requests", span=span, colour=3)


def _thinned(points: Sequence[Point]) -> list[Point]:
    """Reduce points to the number that a chart can show: merged points show their mean."""
    size = -(-len(points) // POINTS)
    groups = (points[at : at + size] for at in range(0, len(points), size))
    return [Point(group[0].x, statistics.fmean(point.y for point in group)) for group in groups]
