"""Named figures that are updated while the page is open."""

from collections.abc import Mapping, Sequence

from nicegui import ui

from nuncius.console.parts.plain import Plain
from nuncius.console.parts.svg import shape
from nuncius.console.parts.words import number


class Cards:
    """A row of figures with fixed names and changing values."""

    def __init__(self, names: Sequence[str], leads: Mapping[str, str] | None = None) -> None:
        """Build the cards. `leads` has the page that a figure links to."""
        self._values: dict[str, ui.label] = {}
        self._notes: dict[str, ui.label] = {}
        with ui.element("div").classes("cards four" if len(names) > 6 else "cards"):
            for name in names:
                href = (leads or {}).get(name)
                with shape("a", href=href) if href else ui.element("div") as card:
                    card.classes("card")
                    ui.label(name).classes("what")
                    self._values[name] = ui.label().classes("value")
                    self._notes[name] = ui.label().classes("note")

    def show(self, values: Mapping[str, str], notes: Mapping[str, str] | None = None) -> None:
        for name, value in values.items():
            self._values[name].set_text(value)
            self._notes[name].set_text((notes or {}).get(name, ""))


class Bars:
    """A bar chart of a few counts."""

    def __init__(self, names: Sequence[str], label: str) -> None:
        self._columns: list[tuple[Plain, ui.element]] = []
        with ui.element("div").classes("bars").props(f'role="img" aria-label="{label}"'):
            for name in names:
                with ui.element("div").classes("col"):
                    count = Plain("span", "")
                    fill = ui.element("div").classes("fill")
                    Plain("span", name)
                self._columns.append((count, fill))

    def show(self, counts: Sequence[int], bound: int | None = None) -> None:
        """Show counts. Counting stopped at `bound`: a count that reached it is shown with a plus."""
        top = max([*counts, 1])
        for (label, fill), count in zip(self._columns, counts, strict=True):
            label.text = number(count, is_exact=bound is None or count < bound) if count else ""
            fill.style(f"height: {60 * count / top:.0f}px")


def facts(pairs: Mapping[str, str]) -> None:
    with ui.element("div").classes("facts"):
        for name, value in pairs.items():
            ui.label(name).classes("what")
            ui.label(value)
