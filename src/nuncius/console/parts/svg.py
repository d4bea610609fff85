"""Pictures made of elements, so that no text from outside is interpreted as markup."""

from nicegui import ui

from nuncius.console.parts.plain import Plain, Value, attribute


def words(text: str, **attributes: Value) -> Plain:
    """Create text inside a picture."""
    return Plain("text", text, **attributes)


def shape(tag: str, **attributes: Value) -> ui.element:
    element = ui.element(tag)
    for name, value in attributes.items():
        attribute(element, name, value)
    return element


def picture(width: float, height: float, label: str) -> ui.element:
    return shape("svg", viewBox=f"0 0 {width:g} {height:g}", role="img", **{"aria-label": label})


class Sparkline:
    """A line of the latest values, the newest at the right."""

    def __init__(self, label: str, points: int = 60) -> None:
        self._points = points
        self._values: list[float] = []
        with picture(points - 1, 20, label).classes("spark").props('preserveAspectRatio="none"'):
            self._area = shape("polygon", points="", **{"class": "spark-area"})
            self._line = shape("polyline", points="", **{"class": "spark-line"})

    def show(self, values: list[float]) -> None:
        values = values[-self._points :]
        if values == self._values:
            return
        self._values = list(values)
        line = points(values, self._points, 20)
        self._line.props["points"] = line
        first = self._points - len(values)
        self._area.props["points"] = f"{first},20 {line} {self._points - 1},20" if values else ""


def points(values: list[float], width: int, height: float) -> str:
    """Return the corners of a line through the values, scaled from zero at the bottom to the highest at the
    top."""
    top = max([*values, 1e-9])
    first = width - len(values)
    return " ".join(
        f"{first + n},{height - 1 - value / top * (height - 2):.1f}" for n, value in enumerate(values)
    )
