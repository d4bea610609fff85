"""The fifteen procedures of Telesto's report, under their names, with their parameters and results."""

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from nuncius.store.driver import Connection

# Name, arguments by position, and the columns of the result; None: a single number.
CLIENT = ["client_id", "client_name", "client_mode"]
QUEUE = ["queue_id", "queue_name"]
MESSAGE = [
    "message_id",
    "queue_id",
    "sender_id",
    "receiver_id",
    "context",
    "priority",
    "time_of_arrival",
    "message",
]
PROCEDURES: list[tuple[str, list[str], list[str] | None]] = [
    ("request_id", ["client_name", "mode"], None),
    ("identify", ["client_id"], CLIENT),
    ("delete_client", ["client_id"], None),
    ("create_queue", ["queue_name"], QUEUE),
    ("delete_queue", ["queue_id"], None),
    ("get_queue_id", ["queue_name"], QUEUE),
    ("get_queue_name", ["queue_id"], QUEUE),
    ("list_queues", [], QUEUE),
    ("get_active_queues", ["client_id"], QUEUE),
    ("get_messages_from_queue", ["queue_id"], MESSAGE),
    (
        "put_message",
        ["queue_id", "sender_id", "receiver_id", "context", "priority", "message"],
        None,
    ),
    (
        "put_messages",
        ["queue_ids", "sender_id", "receiver_id", "context", "priority", "message"],
        None,
    ),
    ("read_message_by_priority", ["queue_id", "sender_id", "receiver_id"], MESSAGE),
    ("read_message_by_timestamp", ["queue_id", "sender_id", "receiver_id"], MESSAGE),
    ("read_response_message", ["queue_id", "receiver_id", "context"], MESSAGE),
]


async def queue(connection: Connection, name: str = "jobs") -> int:
    made: int = await connection.fetchval("select queue_id from nuncius.create_queue($1)", name)
    return made


async def put(
    connection: Connection,
    queue_id: int,
    text: str,
    *,
    sender: int | None = 1,
    receiver: int | None = None,
    context: int | None = None,
    priority: int = 5,
) -> int | None:
    done: int | None = await connection.fetchval(
        "select nuncius.put_message($1, $2, $3, $4, $5, $6::text)",
        queue_id,
        sender,
        receiver,
        context,
        priority,
        text,
    )
    return done


async def read(connection: Connection, call: str, *arguments: object) -> str | None:
    rows = await connection.fetch(f"select * from nuncius.{call}", *arguments)
    assert len(rows) <= 1
    return rows[0]["message"].decode() if rows else None


async def by_priority(
    connection: Connection, queue_id: int, receiver: int | None, sender: int | None = None
) -> str | None:
    call = "read_message_by_priority($1, $2, $3)"
    return await read(connection, call, queue_id, sender, receiver)


async def by_time(
    connection: Connection, queue_id: int, receiver: int | None, sender: int | None = None
) -> str | None:
    call = "read_message_by_timestamp($1, $2, $3)"
    return await read(connection, call, queue_id, sender, receiver)


async def response(
    connection: Connection, queue_id: int, receiver: int | None, context: int | None
) -> str | None:
    return await read(connection, "read_response_message($1, $2, $3)", queue_id, receiver, context)


@pytest.mark.parametrize(("name", "parameters", "columns"), PROCEDURES)
async def test_names_parameters_and_results(
    connection: Connection, name: str, parameters: list[str], columns: list[str] | None
) -> None:
    """Every procedure of table 3.5 exists, with its parameters in their order and its result."""
    rows = await connection.fetch(
        "select proargnames, pronargs from pg_proc"
        " where pronamespace = 'nuncius'::regnamespace and proname = $1",
        name,
    )
    assert rows
    for row in rows:
        assert (row["proargnames"] or [])[: row["pronargs"]] == parameters
    if columns is not None:
        nulls = ", ".join("null" for _ in parameters)
        prepared = await connection.prepare(f"select * from nuncius.{name}({nulls})")
        found = [attribute.name for attribute in prepared.get_attributes()]
        assert found[: len(columns)] == columns


# Clients


async def test_register_and_identify(connection: Connection) -> None:
    """A client gets an id for its name and mode, and is found by it."""
    client = await connection.fetchval("select nuncius.request_id('ann', 2)")
    row = await connection.fetchrow("select * from nuncius.identify($1)", client)
    assert row is not None
    assert tuple(row) == (client, "ann", 2)
    assert await connection.fetch("select * from nuncius.identify(999)") == []


async def test_client_names_are_unique(connection: Connection) -> None:
    """A name that is taken raises a unique violation."""
    await connection.fetchval("select nuncius.request_id('ann', 1)")
    with pytest.raises(asyncpg.UniqueViolationError):
        await connection.fetchval("select nuncius.request_id('ann', 2)")


async def test_delete_client(connection: Connection) -> None:
    """Deleting answers with the id, or null when there was none; the name is free again."""
    client = await connection.fetchval("select nuncius.request_id('ann', 1)")
    assert await connection.fetchval("select nuncius.delete_client($1)", client) == client
    assert await connection.fetchval("select nuncius.delete_client($1)", client) is None
    assert await connection.fetchval("select nuncius.request_id('ann', 1)") != client


async def test_client_mode(connection: Connection) -> None:
    """There are two modes."""
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.fetchval("select nuncius.request_id('ann', 3)")


# Queues


async def test_create_and_find_queues(connection: Connection) -> None:
    """A queue is found by its name and by its id, and listed."""
    made = await connection.fetchrow("select * from nuncius.create_queue('jobs')")
    assert made is not None
    queue_id = made["queue_id"]
    assert tuple(made) == (queue_id, "jobs")
    by_name = await connection.fetch("select * from nuncius.get_queue_id('jobs')")
    by_id = await connection.fetch("select * from nuncius.get_queue_name($1)", queue_id)
    assert [tuple(row) for row in by_name + by_id] == [(queue_id, "jobs")] * 2
    more = await queue(connection, "more")
    listed = await connection.fetch("select * from nuncius.list_queues()")
    assert [tuple(row) for row in listed] == [(queue_id, "jobs"), (more, "more")]
    assert await connection.fetch("select * from nuncius.get_queue_id('nothing')") == []
    assert await connection.fetch("select * from nuncius.get_queue_name(999)") == []


async def test_queue_names_are_unique(connection: Connection) -> None:
    """A name that is taken raises a unique violation."""
    await queue(connection)
    with pytest.raises(asyncpg.UniqueViolationError):
        await queue(connection)


async def test_delete_queue(connection: Connection) -> None:
    """A queue goes with its messages; the answer is its id, or null when there was none."""
    jobs = await queue(connection)
    await put(connection, jobs, "a")
    assert await connection.fetchval("select nuncius.delete_queue($1)", jobs) == jobs
    assert await connection.fetchval("select nuncius.delete_queue($1)", jobs) is None
    assert await connection.fetchval("select count(*) from nuncius.messages") == 0


async def test_delete_queue_announces(connection: Connection) -> None:
    """Nodes hear of a queue that is deleted, and nothing of one that there was not."""
    jobs = await queue(connection)
    told: list[object] = []
    await connection.add_listener("nuncius", lambda *arguments: told.append(arguments[-1]))
    for missing in (999, 0, -1):
        await connection.fetchval("select nuncius.delete_queue($1)", missing)
    assert told == []
    await connection.fetchval("select nuncius.delete_queue($1)", jobs)
    assert told == ["c", f"q{jobs}"]


async def test_active_queues(connection: Connection) -> None:
    """A queue with anything for a client is active for it, and listed once however much there is."""
    mine, anyones = await queue(connection, "mine"), await queue(connection, "anyones")
    both, others = await queue(connection, "both"), await queue(connection, "others")
    await queue(connection, "empty")
    for _ in range(3):
        await put(connection, mine, "x", receiver=7)
        await put(connection, anyones, "x")
        await put(connection, both, "x", receiver=7)
        await put(connection, both, "x")
        await put(connection, others, "x", receiver=8)
    active = await connection.fetch("select * from nuncius.get_active_queues(7)")
    assert [tuple(row) for row in active] == [(mine, "mine"), (anyones, "anyones"), (both, "both")]
    await connection.execute("select nuncius.purge_queues($1)", [anyones])
    active = await connection.fetch("select queue_id from nuncius.get_active_queues(7)")
    assert [row[0] for row in active] == [mine, both]


async def test_messages_of_a_queue(connection: Connection) -> None:
    """All messages of a queue can be seen, oldest first, whoever they are for; none is taken."""
    jobs = await queue(connection)
    await put(connection, jobs, "a", receiver=7, priority=1)
    await put(connection, jobs, "b", priority=10)
    await put(connection, await queue(connection, "more"), "c")
    for _ in range(2):
        seen = await connection.fetch("select * from nuncius.get_messages_from_queue($1)", jobs)
        assert [row["message"] for row in seen] == [b"a", b"b"]


# Messages


async def test_put_answers_with_the_queue(connection: Connection) -> None:
    """Putting answers with the queue's id, and with null when there is no such queue."""
    jobs = await queue(connection)
    assert await put(connection, jobs, "a") == jobs
    assert await put(connection, 999, "a") is None


async def test_what_is_stored(connection: Connection) -> None:
    """A message keeps everything it was put with; nobody and none are 0."""
    jobs = await queue(connection)
    await put(connection, jobs, "hé", sender=3, receiver=4, context=5, priority=6)
    await put(connection, jobs, "bare", sender=None)
    full, bare = await connection.fetch("select * from nuncius.get_messages_from_queue($1)", jobs)
    assert (full["queue_id"], full["sender_id"], full["receiver_id"]) == (jobs, 3, 4)
    assert (full["context"], full["priority"], full["message"]) == (5, 6, "hé".encode())
    assert abs(full["time_of_arrival"] - datetime.now(UTC)) < timedelta(minutes=1)
    assert (bare["sender_id"], bare["receiver_id"], bare["context"]) == (0, 0, 0)


async def test_bytes_and_text(connection: Connection) -> None:
    """Bodies are bytes; text goes in as UTF-8 and helpers turn one into the other."""
    jobs = await queue(connection)
    call = "select nuncius.put_message($1, 1, null, null, 5, $2::bytea)"
    assert await connection.fetchval(call, jobs, b"\x00\xff") == jobs
    await connection.execute(f"select nuncius.put_message({jobs}, 1, null, null, 5, 'plain')")
    rows = await connection.fetch("select * from nuncius.get_messages_from_queue($1)", jobs)
    assert [row["message"] for row in rows] == [b"\x00\xff", b"plain"]
    assert await connection.fetchval("select nuncius.as_text($1)", "é".encode()) == "é"
    assert await connection.fetchval("select nuncius.as_bytes('é')") == "é".encode()
    assert await connection.fetchval("select nuncius.as_text(null)") is None


@pytest.mark.parametrize("kind", ["text", "bytea"])
async def test_put_into_several_queues(connection: Connection, kind: str) -> None:
    """The message goes into each of the queues, and the answer names them."""
    ids = [await queue(connection, name) for name in ("a", "b", "c")]
    body = "x" if kind == "text" else b"x"
    call = f"select nuncius.put_messages($1, 1, null, null, 5, $2::{kind})"
    rows = await connection.fetch(call, ids[:2], body)
    assert [row[0] for row in rows] == ids[:2]
    assert [await by_priority(connection, each, 1) for each in ids] == ["x", "x", None]


async def test_put_into_several_is_all_or_nothing(connection: Connection) -> None:
    """If one of the queues does not exist, the message goes into none, and no id comes back."""
    ids = [await queue(connection, name) for name in ("a", "b")]
    call = "select nuncius.put_messages($1, 1, null, null, 5, 'x')"
    assert await connection.fetch(call, [ids[0], 999, ids[1]]) == []
    assert await connection.fetch(call, []) == []
    assert await connection.fetchval("select count(*) from nuncius.messages") == 0


@pytest.mark.parametrize("priority", [0, 11, -1, None])
async def test_priorities(connection: Connection, priority: int | None) -> None:
    """A priority is between 1 (lowest) and 10."""
    jobs = await queue(connection)
    with pytest.raises(asyncpg.InvalidParameterValueError, match="between 1 and 10"):
        await connection.fetchval("select nuncius.put_message($1, 1, null, null, $2, 'x')", jobs, priority)


async def test_read_by_priority(connection: Connection) -> None:
    """The highest priority comes first, and the oldest first within it."""
    jobs = await queue(connection)
    for text, priority in [("a", 5), ("b", 9), ("c", 9), ("d", 1), ("e", 10)]:
        await put(connection, jobs, text, priority=priority)
    assert [await by_priority(connection, jobs, 1) for _ in range(6)] == ["e", "b", "c", "a", "d", None]


async def test_read_by_timestamp(connection: Connection) -> None:
    """The oldest comes first, whatever its priority."""
    jobs = await queue(connection)
    for text, priority in [("a", 5), ("b", 9), ("c", 1), ("d", 10)]:
        await put(connection, jobs, text, priority=priority)
    assert [await by_time(connection, jobs, 1) for _ in range(5)] == ["a", "b", "c", "d", None]


async def test_who_may_read(connection: Connection) -> None:
    """A message without a receiver is for anyone; one with a receiver is for that client only."""
    jobs = await queue(connection)
    await put(connection, jobs, "for 7", receiver=7, priority=9)
    await put(connection, jobs, "for anyone")
    assert await by_priority(connection, jobs, 8) == "for anyone"
    assert await by_priority(connection, jobs, 8) is None
    assert await by_time(connection, jobs, None) is None
    assert await by_time(connection, jobs, 7) == "for 7"


@pytest.mark.parametrize("nobody", [None, 0])
async def test_null_and_zero_mean_anyone(connection: Connection, nobody: int | None) -> None:
    """Null and 0 mean the same: any receiver, any sender, no context."""
    jobs = await queue(connection)
    await put(connection, jobs, "a", sender=3, receiver=nobody, context=nobody)
    assert await by_priority(connection, jobs, nobody, nobody) == "a"


async def test_read_from_a_sender(connection: Connection) -> None:
    """Who names a sender gets messages of that sender only, in the order asked for."""
    jobs = await queue(connection)
    for text, sender, priority in [("a", 1, 5), ("b", 2, 5), ("c", 2, 9), ("d", 1, 9)]:
        await put(connection, jobs, text, sender=sender, priority=priority)
    assert await by_time(connection, jobs, 7, 2) == "b"
    assert await by_priority(connection, jobs, 7, 1) == "d"
    assert await by_priority(connection, jobs, 7, 2) == "c"
    assert await by_priority(connection, jobs, 7, 2) is None


async def test_read_a_response(connection: Connection) -> None:
    """A response is found by its receiver and its context; without a context there is none."""
    jobs = await queue(connection)
    await put(connection, jobs, "request", sender=7, context=42)
    await put(connection, jobs, "not mine", receiver=8, context=42)
    await put(connection, jobs, "another", receiver=7, context=43)
    await put(connection, jobs, "plain", receiver=7)
    assert await response(connection, jobs, 7, 42) is None
    await put(connection, jobs, "answer", receiver=7, context=42)
    assert await response(connection, jobs, 7, 42) == "answer"
    assert await response(connection, jobs, 7, 42) is None
    assert await response(connection, jobs, 7, 0) is None
    assert await response(connection, jobs, 7, None) is None
    assert await connection.fetchval("select count(*) from nuncius.messages") == 4


async def test_messages_for_clients_to_come(connection: Connection) -> None:
    """A message may be addressed to a client that registers later."""
    jobs = await queue(connection)
    await put(connection, jobs, "early", receiver=1)
    client = await connection.fetchval("select nuncius.request_id('ann', 1)")
    assert client == 1
    assert await by_time(connection, jobs, client) == "early"


async def test_inside_a_transaction_of_ones_own(connection: Connection, other: Connection) -> None:
    """Called inside a client's transaction, everything happens if and only if that commits."""
    jobs = await queue(connection)
    await put(connection, jobs, "stays")
    await connection.execute("begin")
    assert await by_time(connection, jobs, 1) == "stays"
    await put(connection, jobs, "comes and goes")
    assert await by_time(connection, jobs, 1) == "comes and goes"
    await queue(connection, "never")
    await connection.fetchval("select nuncius.request_id('nobody', 1)")
    await connection.execute("rollback")
    assert await by_time(other, jobs, 1) == "stays"
    assert await by_time(other, jobs, 1) is None
    assert len(await other.fetch("select * from nuncius.list_queues()")) == 1
    assert await other.fetchval("select count(*) from nuncius.clients") == 0
