"""A message in a dialog: its properties and its body, as text, JSON or bytes."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from nicegui import ui

from nuncius.console.parts import bodies
from nuncius.console.parts.plain import Plain
from nuncius.console.parts.words import size

VIEWS = {"text": "Text", "json": "JSON", "hex": "Hex"}


@dataclass(frozen=True, slots=True)
class Button:
    label: str
    act: Callable[[], Awaitable[bool]]
    """Returns True if the message is done; then the dialog closes."""
    icon: str | None = None


class Viewer:
    """A dialog that shows the messages of a page."""

    def __init__(self) -> None:
        self._dialog = ui.dialog()
        with self._dialog:
            self._card = ui.card().classes("viewer")

    def show(
        self,
        title: str,
        facts: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        file_name: str,
        buttons: Sequence[Button] = (),
    ) -> None:
        self._card.clear()
        with self._card:
            ui.label(title).classes("section")
            _pairs(facts)
            if headers:
                ui.label("Headers").classes("section")
                _pairs(headers)
            _body(body, file_name)
            with ui.element("div").classes("buttons"):
                for each in buttons:
                    ui.button(each.label, icon=each.icon, on_click=lambda each=each: self._press(each)).props(
                        "flat"
                    )
                ui.button("Close", on_click=self._dialog.close).props("flat")
        self._dialog.open()

    async def _press(self, button: Button) -> None:
        if await button.act():
            self._dialog.close()


def _pairs(facts: Mapping[str, str]) -> None:
    with ui.element("div").classes("facts"):
        for name, value in facts.items():
            ui.label(_shown(name)).classes("what")
            ui.label(_shown(value))


def _shown(text: str) -> str:
    cut = text if len(text) <= bodies.SHOWN_BYTES else text[: bodies.SHOWN_BYTES] + "…"
    return "".join(map(bodies.visible, cut))


def _body(body: bytes, file_name: str) -> None:
    as_json = bodies.as_json(body)
    first = "json" if as_json is not None else "text" if bodies.is_text(body) else "hex"
    made = {
        "text": lambda: bodies.as_text(body),
        "json": lambda: as_json or "",
        "hex": lambda: bodies.as_hex(body),
    }
    options = {name: label for name, label in VIEWS.items() if name != "json" or as_json is not None}
    with ui.element("div").classes("buttons"):
        choice = ui.toggle(options, value=first).props("dense flat")
        ui.element("div").classes("grow")
        ui.label(size(len(body))).classes("note")
        ui.button("Download", icon="download", on_click=lambda: ui.download.content(body, file_name)).props(
            "flat dense"
        )
    shown = Plain("pre", made[first](), tabindex="0").classes("body")
    cut = ui.label().classes("note")

    def change() -> None:
        shown.text = made[choice.value]()
        shown.classes(add="hex") if choice.value == "hex" else shown.classes(remove="hex")
        most = bodies.SHOWN_BYTES // 4 if choice.value == "hex" else bodies.SHOWN_BYTES
        is_cut = len(body) > most
        cut.set_visibility(is_cut)
        cut.set_text(f"Only the first {size(most)} are shown; download it for the rest." if is_cut else "")

    choice.on_value_change(change)
    change()
