"""Statements in files: each is used, explained, and finds its rows in big tables by an index."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nuncius.store.driver import Connection
from nuncius.store.queries import query

SOURCE = Path(__file__).parent.parent.parent / "src" / "nuncius"
QUERIES = SOURCE / "store" / "sql" / "queries"
STATEMENTS = sorted((path.parent.name, path.stem) for path in QUERIES.rglob("*.sql"))

# Tables with a row for each message, position, request or connection. The others hold what users create
# (topics, queues, subscriptions, groups) or run (nodes, jobs): a few thousand rows at most.
BIG_TABLES = {
    *("entries", "messages", "leases", "returned"),
    *("publishers", "publisher_counts", "claims"),
    *("positions", "deliveries", "failures", "sequences", "consumed", "activity", "ends"),
    *("key_values", "key_lists", "key_items"),
}
# These report on a whole big table, at the request of an operator or in a duty, and so read all of it.
READS_A_WHOLE_TABLE: set[tuple[str, str]] = set()


def plans(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a node of a plan and all nodes below it."""
    yield node
    for child in node.get("Plans", ()):
        yield from plans(child)


def reads_all(node: dict[str, Any]) -> bool:
    """Return True if a node reads every row of its table, with an index or without."""
    scan = node["Node Type"]
    return scan == "Seq Scan" or (scan in ("Index Scan", "Index Only Scan") and "Index Cond" not in node)


async def whole_tables(connection: Connection, statement: str) -> set[str]:
    """Return the big tables that a statement reads from end to end, whatever its parameters are."""
    await connection.execute("""
        create or replace function pg_temp.explain(statement text) returns json language plpgsql as $$
        declare plan json;
        begin
            execute 'explain (generic_plan, format json) ' || statement into plan;
            return plan;
        end $$""")
    await connection.execute("set enable_seqscan = off; set enable_bitmapscan = off")
    plan = json.loads(await connection.fetchval("select pg_temp.explain($1)", statement))
    found = {
        node["Relation Name"]
        for node in plans(plan[0]["Plan"])
        if "Relation Name" in node and reads_all(node)
    }
    parents = "select inhparent::regclass::text from pg_inherits where inhrelid = to_regclass($1)"
    for table in list(found):  # a part of a table counts as the table
        found |= {
            row[0].removeprefix("nuncius.") for row in await connection.fetch(parents, f"nuncius.{table}")
        }
    return found & BIG_TABLES


def used(source: Path) -> set[tuple[str, str]]:
    """Return the subjects and names in all calls of `query` below a folder."""
    found = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name("query"), args=[ast.Constant(str() as subject), ast.Constant(str() as name)]
                ):
                    found.add((subject, name))
    return found


def test_files_and_uses_agree() -> None:
    """Every statement has a user, and every statement that is used has a file."""
    assert used(SOURCE) == set(STATEMENTS)


@pytest.mark.parametrize(("subject", "name"), STATEMENTS, ids=map("/".join, STATEMENTS))
async def test_a_statement_finds_its_rows(connection: Connection, subject: str, name: str) -> None:
    """A statement is valid, and reads no big table from end to end unless it reports on all of it."""
    read = await whole_tables(connection, query(subject, name))
    assert bool(read) == ((subject, name) in READS_A_WHOLE_TABLE), read


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("select body from nuncius.entries where partition_id = $1 and entry_offset >= $2", set()),
        ("select body from nuncius.entries where key = $1", {"entries"}),
        ("select count(*) from nuncius.positions", {"positions"}),
        ("delete from nuncius.leases where attempts > $1", {"leases"}),
        (
            "select q.* from nuncius.queues q where queue_id in (select queue_id from nuncius.returned)",
            {"returned"},
        ),
        ("select name from nuncius.part where name = 'x'", {"messages"}),
    ],
)
async def test_a_read_of_a_whole_table_is_found(
    connection: Connection, statement: str, expected: set[str]
) -> None:
    """A read of a big table or a part of one from end to end is found wherever it stands in the plan."""
    await connection.execute("create table nuncius.part (name text) inherits (nuncius.messages)")
    assert await whole_tables(connection, statement) == expected


def test_a_file_without_its_comment_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement whose first line does not say what it is for is not loaded."""
    (tmp_path / "sql" / "queries" / "topics").mkdir(parents=True)
    (tmp_path / "sql" / "queries" / "topics" / "bare.sql").write_text("select 1\n;")
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    with pytest.raises(ValueError, match="does not say what it is for"):
        query("topics", "bare")
