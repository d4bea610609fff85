"""The procedures on the page about SQL have the parameters that it states."""

import re

import pytest

from docs.examples import ROOT
from nuncius.store.driver import Connection

PAGE = (ROOT / "docs" / "sql.md").read_text("utf-8")
STATED = {
    name: [argument for argument in arguments.split(", ") if argument]
    for row in re.findall(r"^\| (`.+?) \|", PAGE, re.MULTILINE)
    for name, arguments in re.findall(r"`(\w+)\(([^)]*)\)`", row)
}


def test_the_page_states_procedures() -> None:
    """The tables are found."""
    assert {"publish", "publish_bytes", "fetch", "put_message", "lease", "settle", "list_failures"} <= set(
        STATED
    )


@pytest.mark.parametrize("name", STATED)
async def test_names_of_parameters(connection: Connection, name: str) -> None:
    """Every procedure has the parameters that the page states, in that order; none is a reserved word, so
    arguments can be given by these names."""
    rows = await connection.fetch(
        "select proargnames[:pronargs] as names from pg_proc"
        " where pronamespace = 'nuncius'::regnamespace and proname = $1",
        name,
    )
    assert rows
    reserved = await connection.fetch("select word from pg_get_keywords() where catcode in ('R', 'C')")
    assert not {row["word"] for row in reserved} & set(STATED[name])
    for row in rows:
        assert (row["names"] or [])[: len(STATED[name])] == STATED[name]
