"""Charts as plain SVG, without libraries, scripts or external files. Colours are those of `page`, so charts
are readable in light and dark mode. Hovering over a mark shows its figures."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 14, 46
_MARKS = 40  # with more points, a line has no marks


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float
    spread: float | None = None
    """The half-width of its confidence interval."""


@dataclass(frozen=True, slots=True)
class Bar:
    low: float
    high: float
    amount: int


def digits(value: float) -> int:
    """Return the number of decimals that gives three significant digits."""
    return 0 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))


def number(value: float) -> str:
    """Format a figure as briefly as possible."""
    text = f"{value:,.{digits(value)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers from low to high."""
    if high <= low:
        return [low]
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(n * step, 10) for n in range(first, last + 1)]


def line(
    points: Sequence[Point],
    *,
    title: str,
    x_label: str,
    y_label: str,
    level: Point | None = None,
    colour: int = 0,
) -> str:
    """Draw a line with the band of its confidence intervals. `level` is a mean to draw with its interval."""
    top = max(p.y + (p.spread or 0) for p in [*points, *([level] if level else [])])
    high = ticks(0, top or 1)[-1]
    high = high if high >= top else high + ticks(0, top or 1)[1]
    lowest, highest = min(p.x for p in points), max(p.x for p in points)
    margin = 0.0 if highest > lowest else 1.0
    x = _scale(lowest - margin, highest + margin, LEFT, WIDTH - RIGHT)
    y = _scale(0, high, HEIGHT - BOTTOM, TOP)
    at = [p.x for p in points] if len(points) <= 8 else ticks(lowest, highest, 8)
    marks = _axes(x, y, at, ticks(0, high), x_label, y_label)
    if level is not None:
        marks += _level(level, y, colour)
    banded = [p for p in points if p.spread is not None]
    if len(banded) > 1:
        upper = [(x(p.x), y(p.y + (p.spread or 0))) for p in banded]
        lower = [(x(p.x), y(max(0, p.y - (p.spread or 0)))) for p in reversed(banded)]
        marks.append(f'<polygon class="band c{colour}" points="{_path([*upper, *lower])}"/>')
    marks.append(f'<polyline class="line c{colour}" points="{_path((x(p.x), y(p.y)) for p in points)}"/>')
    if len(points) <= _MARKS:
        for p in points:
            tip = f"{number(p.x)} {x_label}: {number(p.y)}" + (
                "" if p.spread is None else f" ± {number(p.spread)}"
            )
            circle = f'<circle class="dot c{colour}" cx="{x(p.x):.1f}" cy="{y(p.y):.1f}" r="3">'
            marks.append(f"{circle}<title>{escape(tip)}</title></circle>")
    return _svg(title, marks, HEIGHT)


def histogram(
    bars: Sequence[Bar],
    *,
    title: str,
    x_label: str,
    y_label: str,
    span: tuple[float, float] | None = None,
    colour: int = 0,
) -> str:
    """Draw amounts over a logarithmic scale, which is as long as the bars unless `span` is given."""
    lowest, highest = (math.log10(edge) for edge in span or (bars[0].low, bars[-1].high))
    top = ticks(0, max(bar.amount for bar in bars))
    high = top[-1] if top[-1] >= max(bar.amount for bar in bars) else top[-1] + top[1]
    place = _scale(lowest, highest, LEFT, WIDTH - RIGHT)

    def x(value: float) -> float:
        return place(math.log10(value))

    y = _scale(0, high, HEIGHT - BOTTOM, TOP)
    marks = _axes(x, y, _decades(lowest, highest), ticks(0, high), x_label, y_label)
    for bar in bars:
        left, right, upper = x(bar.low), x(bar.high), y(bar.amount)
        shape = (
            f'x="{left + 0.5:.1f}" y="{upper:.1f}" width="{right - left - 1:.1f}" height="{y(0) - upper:.1f}"'
        )
        tip = f"{number(bar.low)} to {number(bar.high)} {x_label}: {bar.amount:,}"
        marks.append(f'<rect class="bar c{colour}" {shape}><title>{escape(tip)}</title></rect>')
    return _svg(title, marks, HEIGHT)


def stacked(rows: Mapping[str, Mapping[str, float]], *, title: str) -> str:
    """Draw a bar for each row, divided by the shares of its parts, whose sum is one."""
    names = list(next(iter(rows.values())))
    step, thick = 30, 20
    height = 34 + step * len(rows)
    left = 14 + 7 * max(map(len, rows))
    x = _scale(0, 1, left, WIDTH - RIGHT)
    marks = []
    for n, name in enumerate(names):
        place = left + n * 110
        marks.append(f'<rect class="bar c{n}" x="{place}" y="4" width="12" height="12"/>')
        marks.append(f'<text x="{place + 18}" y="14">{escape(name)}</text>')
    for row, (label, shares) in enumerate(rows.items()):
        top, begin = 30 + row * step, 0.0
        marks.append(f'<text class="end" x="{left - 8}" y="{top + 14}">{escape(label)}</text>')
        for n, name in enumerate(names):
            share = shares[name]
            shape = f'x="{x(begin):.2f}" y="{top}" width="{x(share) - x(0):.2f}" height="{thick}"'
            tip = f"{label}: {name} {share:.1%}"
            marks.append(f'<rect class="bar c{n}" {shape}><title>{escape(tip)}</title></rect>')
            begin += share
    return _svg(title, marks, height)


Scale = Callable[[float], float]


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _decades(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times each power of ten or, for long scales, the powers alone."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    factors = (1, 2, 5) if high - low <= 3 else (1,)
    values = [factor * 10.0**power for power in powers for factor in factors]
    return [value for value in values if low - 1e-9 <= math.log10(value) <= high + 1e-9]


def _axes(
    x: Scale, y: Scale, across: Iterable[float], up: Iterable[float], x_label: str, y_label: str
) -> list[str]:
    marks = []
    for value in up:
        marks.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        )
        marks.append(f'<text class="end" x="{LEFT - 8}" y="{y(value) + 4:.1f}">{number(value)}</text>')
    below = HEIGHT - BOTTOM + 18
    marks += [f'<text class="mid" x="{x(at):.1f}" y="{below}">{number(at)}</text>' for at in across]
    middle = (TOP + HEIGHT - BOTTOM) / 2
    marks.append(
        f'<text class="mid" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}">{escape(x_label)}</text>'
    )
    marks.append(f'<text class="mid" transform="translate(14 {middle}) rotate(-90)">{escape(y_label)}</text>')
    return marks


def _level(level: Point, y: Scale, colour: int) -> list[str]:
    marks = []
    if level.spread is not None:
        upper, lower = y(level.y + level.spread), y(max(0, level.y - level.spread))
        shape = (
            f'x="{LEFT}" y="{upper:.1f}" width="{WIDTH - LEFT - RIGHT}" height="{max(1, lower - upper):.1f}"'
        )
        marks.append(f'<rect class="band c{colour}" {shape}/>')
    place = f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(level.y):.1f}" y2="{y(level.y):.1f}"'
    marks.append(f'<line class="level c{colour}" {place}/>')
    return marks


def _path(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _svg(title: str, marks: Iterable[str], height: int) -> str:
    name = escape(title, quote=True)
    head = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{name}">'
    return f"<figure><figcaption>{name}</figcaption>{head}{''.join(marks)}</svg></figure>"
