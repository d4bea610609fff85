"""The frame of every page: title, navigation, theme, keys, live updates."""

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fastapi import Request
from nicegui import ui

from nuncius.broker.errors import BrokerError, StoreError
from nuncius.console import icon
from nuncius.console.context import Console, Visit
from nuncius.console.parts.plain import Plain, link
from nuncius.console.parts.svg import shape

LIVE_SECONDS = 2.0
THEME = "nuncius-theme"
PAGES = (
    ("overview", "Overview", ""),
    ("queues", "Queues", "queues"),
    ("topics", "Topics", "topics"),
    ("subscriptions", "Subscriptions", "subscriptions"),
    ("clients", "Clients", "clients"),
    ("cluster", "Cluster", "cluster"),
    ("pipelines", "Pipelines", "pipelines"),
    ("store", "Store", "store"),
)
KEYS = (
    *((str(n), title) for n, (_, title, _) in enumerate(PAGES, 1)),
    ("/", "search"),
    ("t", "light or dark"),
    ("?", "these keys"),
    ("Esc", "close a dialog"),
)
_HERE = Path(__file__).parent.parent
_STYLE = (_HERE / "style.css").read_text("utf-8")
_SCRIPT = (
    (_HERE / "keys.js")
    .read_text("utf-8")
    .replace("PAGES", json.dumps([href or "./" for _, _, href in PAGES]))
    .replace("THEME", THEME)
)


class PageFrame:
    """A page under construction."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.console = visit.console
        with ui.element("div").classes("card trouble") as self._trouble:
            self._said = ui.label()
        self._trouble.set_visibility(False)

    @property
    def may_change(self) -> bool:
        return not self.console.read_only

    async def live(self, refresh: Callable[[], Awaitable[None]], seconds: float = LIVE_SECONDS) -> None:
        """Refresh the page regularly while it is open. If the store is away, the page says so."""

        async def again() -> None:
            try:
                await refresh()
            except (StoreError, BrokerError) as error:
                self._said.set_text(f"This page is not up to date: {error}")
                self._trouble.set_visibility(True)
            else:
                self._trouble.set_visibility(False)

        await again()
        ui.timer(seconds, again, immediate=False)


@contextmanager
def frame(console: Console, request: Request, title: str, page: str) -> Iterator[PageFrame]:
    theme = {"dark": True, "light": False}.get(request.cookies.get(THEME, ""))
    ui.page_title(f"{title} · Nuncius")
    ui.add_css(_STYLE)
    ui.dark_mode(theme)
    help_text = _help()
    with (
        ui.left_drawer(value=False, bordered=True).props("width=200 breakpoint=900 show-if-above") as drawer,
        ui.element("nav"),
    ):
        for n, (name, label, href) in enumerate(PAGES, 1):
            way = shape("a", href=href or "./").classes("here" if name == page else "")
            if name == page:
                way.props["aria-current"] = "page"
            with way:
                Plain("span", label)
                Plain("span", str(n)).classes("key")
    with ui.header().props("height-hint=48"), ui.element("div").classes("bar"):
        ui.button(icon="menu", on_click=drawer.toggle).props("flat round dense aria-label=Menu")
        _way(title, page)
        ui.element("div").classes("grow")
        if console.read_only:
            ui.label("read only").classes("badge")
        turn = ui.button(icon="contrast").on("click", js_handler="() => turnColours()")
        turn.props('flat round dense aria-label="Light or dark"')
        keys = ui.button(icon="keyboard", on_click=help_text.open).classes("keys-button gt-xs")
        keys.props("flat round dense aria-label=Keys")
    ui.add_body_html(f"<script>{_SCRIPT}</script>")
    yield PageFrame(console.visit(request))


def _way(title: str, page: str) -> None:
    """Show the brand, a link to the list that this page belongs to, and the title."""
    with shape("a", href="./", **{"aria-label": "Nuncius, the overview"}).classes("brand"):
        ui.html(icon.SVG, sanitize=False).props("aria-hidden=true")
        Plain("span", "Nuncius").classes("gt-xs")
    for name, label, href in PAGES:
        if name == page and label != title:
            link(label, href)
            Plain("span", "/").classes("note").props("aria-hidden=true")
    Plain("h1", title)


def _help() -> ui.dialog:
    with ui.dialog() as dialog, ui.card():
        ui.label("Keys").classes("section")
        with ui.element("div").classes("facts"):
            for key, what in KEYS:
                Plain("kbd", key)
                ui.label(what)
        ui.button("Close", on_click=dialog.close).props("flat")
    return dialog
