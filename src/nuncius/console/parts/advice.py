"""Problems, with recommendations."""

from collections.abc import Sequence

from nicegui import ui

from nuncius.broker.observe.findings import Finding, sentence
from nuncius.console.parts.plain import Plain

LEVELS = {"ok": "OK", "warn": "Warning", "fail": "Problem"}


class Advices:
    def __init__(self, title: str = "") -> None:
        with ui.element("div").classes("card"):
            if title:
                ui.label(title).classes("section")
            self._place = ui.element("div")
        self._shown: tuple[Finding, ...] | None = None

    def show(self, advice: Sequence[Finding]) -> None:
        if tuple(advice) == self._shown:
            return
        self._shown = tuple(advice)
        self._place.clear()
        with self._place:
            for each in advice:
                with ui.element("div").classes("advice"):
                    Plain("span", LEVELS[each.state]).classes(f"state state-{each.state}")
                    with ui.element("div"):
                        ui.label(sentence(each.detail))
                        if each.advice:
                            ui.label(sentence(each.advice)).classes("note")
