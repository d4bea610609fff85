"""Buttons for the selected rows of a table; they are disabled while none is selected."""

from collections.abc import Awaitable, Callable

from nicegui import ui

from nuncius.console.parts.words import plural


class Chosen:
    def __init__(self, thing: str) -> None:
        self._thing = thing
        self._buttons: list[ui.button] = []

    def build(self) -> None:
        with ui.element("div").classes("buttons chosen") as self._place:
            self._note = ui.label().classes("note")
        self.show(0)

    def button(self, label: str, icon: str, act: Callable[[], Awaitable[None] | None], colour: str) -> None:
        with self._place:
            made = ui.button(label, icon=icon, on_click=act).props(f"flat dense color={colour}")
        made.set_enabled(False)
        self._buttons.append(made)

    def show(self, count: int) -> None:
        self._note.set_text(f"{plural(count, self._thing)} selected" if count else "0 selected")
        for each in self._buttons:
            each.set_enabled(count > 0)
