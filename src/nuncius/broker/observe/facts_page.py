"""Pages of facts. The store sorts, searches and pages, so the cost depends on the rows shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from nuncius.broker.errors import InvalidInput
from nuncius.store.queries import query
from nuncius.store.store import Store

PAGE = query("facts", "page")

MOST_ROWS = 1000
MOST_OFFSET = 10_000

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Page(Generic[R]):
    """Some rows, and how many there are in all."""

    rows: tuple[R, ...]
    total: int
    is_exact: bool = True
    """False: `total` is a lower bound."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A request for a page: rows from `offset` on, with `search` in their names, in the order of `sort`."""

    sort: str = "name"
    descending: bool = False
    search: str = ""
    offset: int = 0
    limit: int = 50

    def check(self, sorts: Mapping[str, object]) -> None:
        if self.sort not in sorts:
            raise InvalidInput(f"sort by {', '.join(sorts)}; not by {self.sort!r}")
        if not 1 <= self.limit <= MOST_ROWS:
            raise InvalidInput(f"a page has 1 to {MOST_ROWS} rows")
        if not 0 <= self.offset <= MOST_OFFSET:
            raise InvalidInput(f"a page begins within the first {MOST_OFFSET} rows")

    @property
    def direction(self) -> str:
        return "desc nulls last" if self.descending else "asc nulls first"


@dataclass(frozen=True, slots=True)
class FactsListing:
    """Rows that can be listed: of a table with an id and a name, and expressions to sort by."""

    source: str
    identity: str
    name: str
    sorts: Mapping[str, str]

    async def ids(self, store: Store, wish: Wish) -> tuple[list[int], int]:
        """Return the ids of a page, and the total number of rows."""
        wish.check(self.sorts)
        statement = PAGE.format(
            source=self.source,
            identity=self.identity,
            name=self.name,
            sort=self.sorts[wish.sort],
            direction=wish.direction,
        )
        rows = await store.query(statement, wish.search, wish.limit, wish.offset)
        return [row["id"] for row in rows if row["id"] is not None], rows[0]["total"]


def headers_of(text: str | None) -> dict[str, str]:
    return {} if text is None else msgspec.json.decode(text, type=dict[str, str])
