"""Change something from a page: ask first, do it, and show the result or the error."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nicegui import ui

from nuncius.broker.errors import BrokerError, StoreError
from nuncius.console.changes import ReadOnly
from nuncius.console.nodes import NodeDoesNotAnswer

EXPECTED = (BrokerError, StoreError, ReadOnly, NodeDoesNotAnswer)


async def sure(question: str, button: str, *, danger: bool = True) -> bool:
    """Ask the visitor to confirm. Return True if confirmed."""
    with ui.dialog() as dialog, ui.card().props('role="alertdialog"'):
        ui.label(question)
        with ui.element("div").classes("buttons"):
            ui.button(button, on_click=lambda: dialog.submit(True)).props(
                f"color={'negative' if danger else 'primary'}"
            )
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat autofocus")
    answer = await dialog
    dialog.delete()
    return bool(answer)


async def say(work: Awaitable[str]) -> bool:
    """Await a change and show its result. Return False if it failed."""
    try:
        text = await work
    except EXPECTED as error:
        ui.notify(str(error), type="negative", multi_line=True, close_button=True, timeout=8000)
        return False
    ui.notify(text, type="positive", multi_line=True)
    return True


class Form:
    """A dialog with fields, whose values are passed to `act` when the visitor submits it."""

    def __init__(self, title: str, button: str, act: Callable[[dict[str, Any]], Awaitable[str]]) -> None:
        self._act = act
        self._fields: dict[str, Any] = {}
        self._dialog = ui.dialog()
        with self._dialog, ui.card().classes("form"):
            ui.label(title).classes("section")
            self._place = ui.column().style("width: 100%")
            with ui.element("div").classes("buttons"):
                self._button = ui.button(button, on_click=self._agreed).props("color=primary")
                ui.button("Cancel", on_click=self._dialog.close).props("flat")

    def text(self, name: str, label: str, value: str = "", *, long: bool = False, hint: str = "") -> "Form":
        with self._place:
            field = ui.textarea(label, value=value) if long else ui.input(label, value=value)
        if hint:
            field.props["hint"] = hint
        if not long:
            field.on("keydown.enter", self._agreed)
        return self._add(name, field)

    def number(self, name: str, label: str, value: int, lowest: int, highest: int) -> "Form":
        with self._place:
            field = ui.number(label, value=value, min=lowest, max=highest, precision=0)
        field.on("keydown.enter", self._agreed)
        return self._add(name, field)

    def _add(self, name: str, field: Any) -> "Form":
        field.props("outlined dense").style("width: 100%")
        if not self._fields:
            field.props("autofocus")
        self._fields[name] = field
        return self

    def choice(self, name: str, options: dict[str, str], value: str) -> "Form":
        with self._place:
            self._fields[name] = ui.radio(options, value=value)
        return self

    def only(self, choice: str, needed: Mapping[str, str]) -> "Form":
        """Show each of these fields only while `choice` has the value that needs it."""

        def arrange() -> None:
            for name, value in needed.items():
                self._fields[name].set_visibility(self._fields[choice].value == value)

        self._fields[choice].on_value_change(arrange)
        arrange()
        return self

    def open(self) -> None:
        self._dialog.open()

    async def _agreed(self) -> None:
        """Submit once, even if the visitor presses repeatedly."""
        if not self._button.enabled:
            return
        self._button.disable()
        try:
            if await say(self._act({name: field.value for name, field in self._fields.items()})):
                self._dialog.close()
        finally:
            self._button.enable()
