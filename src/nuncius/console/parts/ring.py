"""A drawing of the ring: an arc for the keys of each place, in its node's colour."""

from collections.abc import Sequence
from math import cos, pi, sin
from typing import Any

from nicegui import ui

from nuncius.broker.observe.facts_cluster import RingPlace
from nuncius.console.parts.svg import picture, shape, words
from nuncius.console.parts.words import number

COLOURS = ("#3d8fcb", "#d98e2b", "#3f9d63", "#b45bb0", "#c9524f", "#6f7fd6", "#8a9a2f", "#2ba39b")
CIRCLE = 2**32
WIDTH, MIDDLE, RADIUS = 420.0, 210.0, 130.0
MOST_NAMES = 24


class RingDrawing:
    def __init__(self) -> None:
        self._place = ui.element("div")
        self._shown: object = None

    def show(self, places: Sequence[RingPlace], inside: Sequence[str]) -> None:
        if (tuple(places), tuple(inside)) == self._shown:
            return
        self._shown = (tuple(places), tuple(inside))
        self._place.clear()
        with self._place, picture(WIDTH, WIDTH, "The ring").classes("ring"):
            _draw(places, inside)


def _draw(places: Sequence[RingPlace], inside: Sequence[str]) -> None:
    nodes = list(dict.fromkeys(each.node for each in places))
    for before, each in zip([places[-1], *places[:-1]], places, strict=True) if places else ():
        colour = COLOURS[nodes.index(each.node) % len(COLOURS)]
        _arc(before.place, each.place, len(places) == 1, colour)
    for each in places:
        colour = COLOURS[nodes.index(each.node) % len(COLOURS)]
        x, y = point(each.place, RADIUS)
        shape("circle", cx=x, cy=y, r=6.0, fill=colour)
        if len(places) <= MOST_NAMES:
            x, y = point(each.place, RADIUS + 22)
            anchor = "start" if x > MIDDLE + 8 else "end" if x < MIDDLE - 8 else "middle"
            words(each.node, x=x, y=y + 4, text_anchor=anchor)
    for n, line in enumerate(inside):
        y = MIDDLE + 16.0 * (n - (len(inside) - 1) / 2)
        words(line, x=MIDDLE, y=y, text_anchor="middle", **{} if n == 0 else {"class": "faint"})


def _arc(start: int, end: int, is_whole: bool, colour: str) -> None:
    if is_whole:
        shape("circle", cx=MIDDLE, cy=MIDDLE, r=RADIUS, fill="none", stroke=colour, stroke_width=14.0)
        return
    (x1, y1), (x2, y2) = point(start, RADIUS), point(end, RADIUS)
    is_long = int((end - start) % CIRCLE > CIRCLE // 2)
    path = f"M {x1:.2f} {y1:.2f} A {RADIUS:g} {RADIUS:g} 0 {is_long} 1 {x2:.2f} {y2:.2f}"
    shape("path", d=path, fill="none", stroke=colour, stroke_width=14.0)


def point(place: int, radius: float) -> tuple[float, float]:
    """Return the coordinates of a place on the circle; 0 is at the top, and places go clockwise."""
    angle = 2 * pi * place / CIRCLE - pi / 2
    return MIDDLE + radius * cos(angle), MIDDLE + radius * sin(angle)


def places_of(said: Sequence[dict[str, Any]]) -> tuple[RingPlace, ...]:
    """Read the places from a node's answer."""
    found = sorted((int(each["place"]), str(each["node"])) for each in said)
    return tuple(
        RingPlace(place, node, ((place - found[n - 1][0]) % CIRCLE) / CIRCLE or 1.0)
        for n, (place, node) in enumerate(found)
    )


def summary(keys: int, items: int) -> list[str]:
    return [f"{number(keys)} keys", f"about {number(items)} items in lists"]
