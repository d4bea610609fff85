"""Elements that contain only text, never markup."""

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

Value = str | float


class Plain(TextElement):
    """An HTML or SVG element of any kind; its text is never interpreted as markup."""

    def __init__(self, tag: str, text: str, **attributes: Value) -> None:
        super().__init__(tag=tag, text=text)
        for name, value in attributes.items():
            attribute(self, name, value)


def attribute(element: ui.element, name: str, value: Value) -> None:
    element.props[name.replace("_", "-")] = f"{value:.2f}" if isinstance(value, float) else value


def link(text: str, href: str) -> Plain:
    """Create a link. `href` is relative, and not from outside."""
    return Plain("a", text, href=href).classes("name")
