"""A table that the store sorts, searches and pages, and that shows its rows as text."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nicegui import events, ui

from nuncius.broker.observe.facts_page import MOST_OFFSET, Page, Wish

Row = dict[str, Any]
ROWS = 20

_LINK = """<q-td :props="props"><a :href="props.row.href" :title="props.value"
 class="name">{{ props.value }}</a></q-td>"""
_OPEN = """<q-td :props="props"><button type="button" class="open"
 @click="$parent.$emit('open', props.row.key)">{{ props.value }}</button></q-td>"""
_EMPTY = """<span class="note">{{ props.message }}</span>"""
_STATE = (
    """<q-td :props="props"><span :class="'state state-' + props.row.state">{{ props.value }}</span></q-td>"""
)


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    label: str
    sort: str | None = None
    """The name by which the store sorts the column; None: it is not sortable."""
    reverse: bool = False
    """The shown values fall as the store's order rises, as ages do."""
    number: bool = False
    wide: bool = False
    """Shown only on wide screens."""
    kind: str = ""
    """"link" links to the row's `href`, "open" calls back with its `key`, "state" has its colour."""


@dataclass(slots=True)
class Paged:
    """A table over a listing. `look` returns the rows for a wish, as text; every row has a `key`."""

    label: str
    columns: Sequence[Column]
    look: Callable[[Wish], Awaitable[Page[Row]]]
    wish: Wish = field(default_factory=Wish)
    searched: str | None = None
    """The placeholder of the search box; None: there is no search box."""
    on_open: Callable[[Any], Awaitable[None]] | None = None
    empty: str = "There is nothing here yet."
    on_choice: Callable[[int], object] | None = None
    """Called with the number of selected rows; without it, rows cannot be selected."""
    rows: int = ROWS
    head: ui.element = field(init=False)
    """The table's heading, with room for more elements."""
    _table: ui.table = field(init=False)
    _more: ui.label = field(init=False)

    def build(self) -> None:
        """Create the table, empty at first; `refresh` fills it."""
        with ui.element("div").classes("table-head") as self.head:
            ui.label(self.label).classes("section")
            if self.searched is not None:
                box = ui.input(placeholder=self.searched, value=self.wish.search, on_change=self._search)
                box.props("dense outlined clearable debounce=300 aria-label=Search").classes("search")
        self.wish = replace(self.wish, limit=self.rows)
        self._table = ui.table(rows=[], columns=[_column(each) for each in self.columns], row_key="key")
        self._table.props("flat dense hide-selected-banner").classes("paged")
        self._table.props["rows-per-page-options"] = [10, ROWS, 50, 100]
        self._table.props["binary-state-sort"] = True
        if self.on_choice is not None:
            self._table.set_selection("multiple")
            self._table.on_select(lambda _: self._chosen())
        slots = {"link": _LINK, "open": _OPEN, "state": _STATE}
        self._table.add_slot("no-data", _EMPTY)
        for each in self.columns:
            if each.kind:
                self._table.add_slot(f"body-cell-{each.name}", slots[each.kind])
        self._table.on("request", self._requested, ["pagination"])
        self._table.on("open", self._opened)
        self._more = ui.label().classes("note")
        self._more.set_visibility(False)

    async def refresh(self) -> None:
        wish = self.wish
        page = await self.look(wish)
        if wish is not self.wish:
            return  # the visitor has asked for another page meanwhile
        if wish.offset and not page.rows:  # the rows of this page are gone
            self.wish = replace(wish, offset=0)
            await self.refresh()
            return
        sorted_by = next((each for each in self.columns if each.sort == wish.sort), None)
        pagination = {
            "sortBy": None if sorted_by is None else sorted_by.name,
            "descending": wish.descending != (sorted_by is not None and sorted_by.reverse),
            "page": 1 + wish.offset // wish.limit,
            "rowsPerPage": wish.limit,
            "rowsNumber": min(page.total, MOST_OFFSET),
        }
        self._set("hide-pagination", page.total <= self.rows)
        self._set("no-data-label", f"Nothing matches {wish.search!r}." if wish.search else self.empty)
        rows = [dict(row) for row in page.rows]
        if self._table.rows != rows:
            self._table.rows = rows
        if self._table.pagination != pagination:
            self._table.pagination = pagination
        self._forget({row["key"] for row in rows})
        is_more = page.total > MOST_OFFSET or not page.is_exact
        others = "search or sort" if self.searched is not None else "sort them the other way to see the last"
        self._more.set_text(f"There are more than can be paged through; {others}." if is_more else "")
        self._more.set_visibility(is_more)

    def _set(self, name: str, value: object) -> None:
        if self._table.props.get(name) != value:
            self._table.props[name] = value

    def _forget(self, shown: set[Any]) -> None:
        """Deselect rows that are not shown."""
        if not shown.issuperset(self.selected):
            self._table.selected = [row for row in self._table.selected if row["key"] in shown]
            self._chosen()

    def _chosen(self) -> None:
        if self.on_choice is not None:
            self.on_choice(len(self._table.selected))

    @property
    def selected(self) -> list[Any]:
        """The keys of the selected rows."""
        return [row["key"] for row in self._table.selected]

    def unselect(self) -> None:
        self._forget(set())

    async def _requested(self, event: events.GenericEventArguments) -> None:
        self.wish = wished(self.wish, self.columns, event.args["pagination"])
        await self.refresh()

    async def _search(self, event: events.ValueChangeEventArguments[Any]) -> None:
        old = self.wish
        self.wish = Wish(old.sort, old.descending, event.value or "", 0, old.limit)
        await self.refresh()

    async def _opened(self, event: events.GenericEventArguments) -> None:
        if self.on_open is not None:
            await self.on_open(event.args)


def cut(rows: Sequence[Row], wish: Wish) -> Page[Row]:
    """Return the page of a listing that the visitor looks at; for listings that come whole from the store."""
    return Page(tuple(rows[wish.offset : wish.offset + wish.limit]), len(rows))


def build_in_cards(tables: Iterable[Paged]) -> Callable[[], Awaitable[None]]:
    """Create tables, each in a card of its own. Return the function that refreshes them."""
    tables = tuple(tables)
    for table in tables:
        with ui.element("div").classes("card"):
            table.build()

    async def refresh() -> None:
        for table in tables:
            await table.refresh()

    return refresh


def wished(old: Wish, columns: Sequence[Column], pagination: Mapping[str, Any]) -> Wish:
    """Build the wish from a browser's request, which is not trusted."""
    asked = str(pagination.get("sortBy"))
    column = next((each for each in columns if each.name == asked and each.sort is not None), None)
    sort = old.sort if column is None or column.sort is None else column.sort
    descending = bool(pagination.get("descending")) != (column is not None and column.reverse)
    limit, page = (_whole(pagination.get(name)) for name in ("rowsPerPage", "page"))
    limit = min(max(limit, 1), 100) if limit else 100
    offset = min(max(page - 1, 0) * limit, MOST_OFFSET)
    return Wish(sort, descending, old.search, offset, limit)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _column(each: Column) -> dict[str, Any]:
    classes = " ".join(name for name, holds in (("gt-xs", each.wide), ("number", each.number)) if holds)
    return {
        "name": each.name,
        "label": each.label,
        "field": each.name,
        "align": "right" if each.number else "left",
        "sortable": each.sort is not None,
        "sortOrder": "da" if each.number else "ad",  # the first click on a number sorts the largest first
        "classes": classes,
        "headerClasses": classes,
    }
