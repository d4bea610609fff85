"""Statements in files: each is used, explained, and finds its rows in big tables by an index."""

import ast
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fix_store import execute, other_database
from nuncius.store.driver import Connection
from nuncius.store.queries import procedure, query
from nuncius.store.server.embedded import EmbeddedServer

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
READS_A_WHOLE_TABLE = {
    ("actors", "health"),
    ("actors", "count_inactive"),
    ("store", "failures_by_subscriber"),
    ("facts", "actors"),
    ("facts", "keys"),
}
PROCEDURES_THAT_READ_A_WHOLE_TABLE = {"list_failures", "depths", "list_awaiting", "overview"}
# What their callers put into statements that a driver without parameters sends, or whose columns vary.
PARTS: dict[tuple[str, str], dict[str, object]] = {
    ("source", "entries"): {
        "columns": "entry_offset, body",
        "partition_id": 1,
        "first": 0,
        "end": 10,
        "without": " and key is null",
    },
    ("source", "publishers"): {"ids": "1, 2"},
    ("facts", "page"): {
        "source": "nuncius.queues",
        "identity": "queue_id",
        "name": "queue_name",
        "sort": "queue_name",
        "direction": "asc nulls first",
    },
    ("facts", "actors"): {"sort": "a.last_active", "direction": "asc nulls first"},
    ("facts", "runs"): {"sort": "run_id", "direction": "desc nulls last"},
    ("jobs", "key_items"): {"first": 0, "last": 10, "pattern": "25"},
}

FILL = """
insert into nuncius.queues (queue_name) select 'queue ' || i from generate_series(1, 10) i;
insert into nuncius.topics (topic_name) select 'topic ' || i from generate_series(1, 10) i;
insert into nuncius.partitions (topic_id, partition) select i, 1 from generate_series(1, 10) i;
insert into nuncius.subscriptions (topic_id, subscriber_name) select i, 'sue' from generate_series(1, 10) i;
set session_replication_role = replica;  -- rows of big tables need no rows in others
do $$
declare
    v_table text;
    v_columns text;
    v_values text;
begin
    foreach v_table in array '{%s}'::text[] loop
        select string_agg(column_name, ', '), string_agg(case data_type
                when 'smallint' then '1 + i %% 10'
                when 'integer' then 'i'
                when 'bigint' then 'i'
                when 'timestamp with time zone' then 'now()'
                else format('%%L', case column_name when 'kind' then 'producer' else 'x' end)
                    || case when column_name ~ 'name$' then ' || i' else '' end
            end, ', ')
        into v_columns, v_values
        from information_schema.columns
        where table_schema = 'nuncius' and table_name = v_table
            and is_nullable = 'NO' and column_default is null and is_identity = 'NO';
        execute format('insert into nuncius.%%I (%%s) select %%s from generate_series(1, 10000) i',
            v_table, v_columns, v_values);
    end loop;
end $$;
analyze
"""


@pytest.fixture(scope="module")
def filled_dsn(server: EmbeddedServer, template: str) -> Iterator[str]:
    """The address of a store with realistic plans: 10,000 rows in each big table, 10 in some others."""
    execute(server.dsn, f"create database filled template {template} strategy file_copy")
    dsn = other_database(server.dsn, "filled")
    execute(dsn, FILL % ", ".join(sorted(BIG_TABLES)))
    yield dsn
    execute(server.dsn, "drop database filled with (force)")


@pytest.fixture
async def filled(filled_dsn: str) -> AsyncIterator[Connection]:
    """A connection to the filled store, on which statements can be explained."""
    opened = await asyncpg.connect(filled_dsn)
    await opened.execute("""
        set enable_seqscan = off;
        set enable_bitmapscan = off;
        set enable_mergejoin = off;  -- it may stop early, which a plan does not show
        create function pg_temp.explain(statement text) returns json language plpgsql as $$
        declare plan json;
        begin
            execute 'explain (generic_plan, format json) ' || statement into plan;
            return plan;
        end $$""")
    yield opened
    await opened.close()


def plans(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a node of a plan and all nodes below it."""
    yield node
    for child in node.get("Plans", ()):
        yield from plans(child)


def reads_all(node: dict[str, Any]) -> bool:
    """Return True if a node reads every row of its table, with an index or without."""
    scan = node["Node Type"]
    return scan == "Seq Scan" or (scan in ("Index Scan", "Index Only Scan") and "Index Cond" not in node)


async def whole_tables(filled: Connection, statement: str) -> set[str]:
    """Return the big tables that a statement reads from end to end, whatever its parameters are."""
    plan = json.loads(await filled.fetchval("select pg_temp.explain($1)", statement))
    found = {n["Relation Name"] for n in plans(plan[0]["Plan"]) if "Relation Name" in n and reads_all(n)}
    parents = "select inhparent::regclass::text from pg_inherits where inhrelid = to_regclass($1)"
    for table in list(found):  # a part of a table counts as the table
        found |= {row[0].removeprefix("nuncius.") for row in await filled.fetch(parents, f"nuncius.{table}")}
    return found & BIG_TABLES


def used(source: Path) -> tuple[set[tuple[str, str]], set[tuple[str, int]]]:
    """Return the subjects and names of all statements that modules below a folder use, and the names of the
    procedures that they call, with the number of arguments."""
    statements, procedures = set(), set()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    ast.Name("query"), [ast.Constant(str() as subject), ast.Constant(str() as name)]
                ):
                    statements.add((subject, name))
                case ast.Call(
                    ast.Name("procedure"), [ast.Constant(str() as name), ast.Constant(int() as count)]
                ):
                    procedures.add((name, count))
                case ast.Call(
                    ast.Attribute(_, "call" | "call_once"), [ast.Constant(str() as name), *arguments]
                ):  # others' methods of that name have requests or methods as arguments, in capitals
                    if name.islower() and not any(isinstance(each, ast.Starred) for each in arguments):
                        procedures.add((name, len(arguments)))
    return statements, procedures


USED, CALLED = used(SOURCE)


def test_files_and_uses_agree() -> None:
    """Every statement has a user, and every statement that is used has a file."""
    assert set(STATEMENTS) == USED


def test_calls_are_found() -> None:
    """The calls of procedures are among what is explained."""
    assert {("find_producer", 1), ("claim_many", 4), ("create_queue", 1)} <= CALLED


@pytest.mark.parametrize(("name", "arguments"), sorted(CALLED), ids=[name for name, _ in sorted(CALLED)])
async def test_a_called_procedure_finds_its_rows(filled: Connection, name: str, arguments: int) -> None:
    """A procedure exists with so many arguments. If it is one statement, that finds its rows, too."""
    read = await whole_tables(filled, procedure(name, arguments))
    assert bool(read) == (name in PROCEDURES_THAT_READ_A_WHOLE_TABLE), f"reads all of {read}"


@pytest.mark.parametrize(("subject", "name"), STATEMENTS, ids=map("/".join, STATEMENTS))
async def test_a_statement_finds_its_rows(filled: Connection, subject: str, name: str) -> None:
    """A statement is valid, and reads no big table from end to end unless it reports on all of it."""
    statement = query(subject, name)
    if (subject, name) in PARTS:
        statement = statement.format(**PARTS[subject, name])
    read = await whole_tables(filled, statement)
    assert bool(read) == ((subject, name) in READS_A_WHOLE_TABLE), f"reads all of {read}"


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
    filled: Connection, statement: str, expected: set[str]
) -> None:
    """A read of a big table or a part of one from end to end is found wherever it stands in the plan."""
    async with filled.transaction():
        await filled.execute("create table nuncius.part (name text) inherits (nuncius.messages)")
        assert await whole_tables(filled, statement) == expected
        await filled.execute("drop table nuncius.part")


def test_a_file_without_its_comment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement whose first line does not say what it is for is not loaded."""
    monkeypatch.setattr("pkgutil.get_data", lambda package, path: b"select 1\n;")
    with pytest.raises(ValueError, match="does not say what it is for"):
        query("topics", "bare")
