"""What the packets do, in both dialects: clients, queues, and who may do what."""

from pathlib import Path

import pytest

from nuncius.broker import errors
from nuncius.doors.telesto import table
from nuncius.doors.telesto.errors import error_packet
from nuncius.doors.telesto.table import (
    ClientMode,
    Dialect,
    ErrorType,
    Queue,
    Request,
)
from nuncius.store.server import embedded
from telesto_peer import Node, Peer, connected, message, running_node

AUTHENTICATED_ONLY: list[Request] = [
    table.DeleteClient(9, 1),
    table.CreateQueue(9, "q"),
    table.DeleteQueue(9, 1),
    table.GetQueueId(9, 0, "q"),
    table.GetQueueName(9, 1),
    table.GetQueues(9),
    table.GetActiveQueues(9),
    table.GetMessages(9, 1),
    table.PutMessage(9, message(1, "x"), []),
    table.ReadMessage(9, 1, 0, 1),
    table.ReadResponse(9, 1, 1),
]


def codes(peer: Peer, error_type: ErrorType, details: str) -> tuple[ErrorType, str]:
    """What an Error says; the report's has no details."""
    return error_type, details if peer.codec.dialect is Dialect.DEPLOYED else ""


# Clients


async def test_ping_before_and_after(stranger: Peer) -> None:
    """Ping is answered before and after authentication."""
    assert await stranger.ask(table.Ping(1)) == table.Pong(1)
    await stranger.register("ann")
    assert await stranger.ask(table.Ping(-5)) == table.Pong(-5)


async def test_only_authentication_before_authentication(stranger: Peer) -> None:
    """Before authentication everything else is Error 1, and the connection stays of use."""
    for packet in AUTHENTICATED_ONLY:
        error_type, details = await stranger.error(packet)
        assert error_type == ErrorType.UNEXPECTED_PACKET
        if stranger.codec.dialect is Dialect.DEPLOYED:
            assert details.startswith(f"{type(packet).__name__} is possible only after")
    await stranger.register("ann")
    await stranger.create("q")


async def test_no_second_authentication(ann: Peer) -> None:
    """After authentication Register and Identify are Error 1."""
    assert (await ann.error(table.RegisterClient(1, "eve", 1)))[0] == ErrorType.UNEXPECTED_PACKET
    assert (await ann.error(table.IdentifyClient(1, ann.client_id)))[0] == ErrorType.UNEXPECTED_PACKET


async def test_failed_authentication_leaves_the_connection_usable(ann: Peer, stranger: Peer) -> None:
    """A taken name is Error 6, an unknown id 5, a bad name or mode 12; another attempt may follow."""
    expected = codes(ann, ErrorType.CLIENT_NAME_NOT_UNIQUE, "there is a client 'ann' already")
    assert await stranger.error(table.RegisterClient(1, "ann", 1)) == expected
    for client_id in (999, 0, -1):
        expected = codes(ann, ErrorType.CLIENT_NOT_EXISTING, f"there is no client {client_id}")
        assert await stranger.error(table.IdentifyClient(1, client_id)) == expected
    for name, mode in (("", 1), ("x" * 256, 1), ("x\0", 1), ("x", 0), ("x", 3)):
        error_type, _ = await stranger.error(table.RegisterClient(1, name, mode))
        assert error_type == ErrorType.REQUIRED_PARAMETER_MISSING
    await stranger.register("eve")


@pytest.mark.parametrize("mode", ClientMode)
async def test_identify_by_id(node: Node, dialect: Dialect, stranger: Peer, mode: ClientMode) -> None:
    """A client that exists is known by its id from any connection, with its name and mode."""
    async with connected(node, dialect) as first:
        client_id = await first.register("Zoë", mode)
    answer = await stranger.ask(table.IdentifyClient(7, client_id))
    assert answer == table.IdentifyClientResponse(7, mode, "Zoë")


async def test_a_client_deletes_itself(ann: Peer, stranger: Peer) -> None:
    """A deleted client cannot be identified any more; its connection may become another's."""
    gone = ann.client_id
    assert await ann.ask(table.DeleteClient(3, gone)) == table.Success(3)
    assert (await stranger.error(table.IdentifyClient(1, gone)))[0] == ErrorType.CLIENT_NOT_EXISTING
    assert (await ann.error(table.GetQueues(4)))[0] == ErrorType.UNEXPECTED_PACKET
    assert await ann.register("ann") != gone


@pytest.mark.parametrize("dialect", [Dialect.REPORT], indirect=True)
async def test_the_report_deletes_clients_by_id(ann: Peer, bob: Peer) -> None:
    """In the report dialect any client is deleted by its id; one that does not exist is Error 5."""
    assert await ann.ask(table.DeleteClient(1, bob.client_id)) == table.Success(1)
    error_type, _ = await ann.error(table.DeleteClient(2, bob.client_id))
    assert error_type == ErrorType.CLIENT_NOT_EXISTING
    await ann.create("still here")


# Queues


async def test_queue_names_and_ids(ann: Peer) -> None:
    """A queue is found by name and by id; a second of the same name is Error 4."""
    queue_id = await ann.create("q€")
    assert await ann.ask(table.GetQueueId(1, 2, "q€")) == table.GetQueueIdResponse(1, queue_id)
    assert await ann.ask(table.GetQueueName(2, queue_id)) == table.GetQueueNameResponse(2, "q€")
    expected = codes(ann, ErrorType.QUEUE_NAME_NOT_UNIQUE, "there is a queue 'q€' already")
    assert await ann.error(table.CreateQueue(3, "q€")) == expected
    assert (await ann.error(table.CreateQueue(3, " ")))[0] == ErrorType.REQUIRED_PARAMETER_MISSING


@pytest.mark.parametrize(
    "packet",
    [
        table.GetQueueId(1, 0, "nowhere"),
        table.GetQueueId(1, 0, ""),
        table.GetQueueName(1, 999),
        table.GetQueueName(1, -1),
        table.DeleteQueue(1, 999),
        table.DeleteQueue(1, 0),
        table.GetMessages(1, 999),
        table.GetMessages(1, -7),
        table.PutMessage(1, message(999, "x"), []),
        table.PutMessage(1, message(-1, "x"), []),
        table.PutMessage(1, message(0, "x"), []),
    ],
    ids=repr,
)
async def test_missing_queues(ann: Peer, packet: Request) -> None:
    """A queue that does not exist is Error 7 on get, delete and put; so is queue 0."""
    assert (await ann.error(packet))[0] == ErrorType.QUEUE_NOT_EXISTING


async def test_reading_from_a_missing_queue(ann: Peer) -> None:
    """On a read, a queue that does not exist is Error 11, like one that is empty."""
    for queue_id in (999, 0, -1):
        assert await ann.finds_nothing(queue_id)
        if queue_id:
            error_type, _ = await ann.error(table.ReadResponse(1, queue_id, 1))
            assert error_type == ErrorType.NO_MESSAGES_RETRIEVED


async def test_listing_queues(ann: Peer) -> None:
    """All queues are listed by id; none at all is Error 9."""
    assert await ann.error(table.GetQueues(1)) == codes(
        ann, ErrorType.NO_QUEUES_EXISTING, "there are no queues"
    )
    queues = [Queue(await ann.create(name), name) for name in ("b", "a")]
    assert await ann.ask(table.GetQueues(2)) == table.GetQueuesResponse(2, queues)


async def test_active_queues(ann: Peer, bob: Peer) -> None:
    """Each queue with messages for the client or for anyone is listed once; none at all is Error 8."""
    mine, theirs, everybodys = [await ann.create(name) for name in ("mine", "theirs", "everybody's")]
    await ann.put(theirs, "x", receiver=bob.client_id)
    error_type, _ = await ann.error(table.GetActiveQueues(1))
    assert error_type == ErrorType.NO_ACTIVE_QUEUES_EXISTING
    for _ in range(3):
        await bob.put(mine, "x", receiver=ann.client_id)
        await bob.put(everybodys, "x")
    expected = [Queue(mine, "mine"), Queue(everybodys, "everybody's")]
    assert await ann.ask(table.GetActiveQueues(2)) == table.GetActiveQueuesResponse(2, expected)


async def test_get_messages(ann: Peer, bob: Peer) -> None:
    """All messages of a queue are shown, oldest first, and none is removed; an empty queue is Error 10."""
    queue = await ann.create("q")
    assert (await ann.error(table.GetMessages(1, queue)))[0] == ErrorType.NO_MESSAGES_IN_QUEUE
    for priority, receiver in ((1, 0), (10, bob.client_id), (5, 77)):
        await ann.put(queue, f"p{priority}", priority=priority, receiver=receiver, context=3)
    for _ in range(2):
        answer = await ann.ask(table.GetMessages(2, queue))
        assert isinstance(answer, table.GetMessagesResponse)
        assert [(m.text, m.priority, m.receiver_id, m.context) for m in answer.messages] == [
            ("p1", 1, 0, 3),
            ("p10", 10, bob.client_id, 3),
            ("p5", 5, 77, 3),
        ]


async def test_deleting_a_queue_deletes_its_messages(ann: Peer) -> None:
    """A deleted queue is gone with what was in it, and its name is free."""
    queue = await ann.create("q")
    await ann.put(queue, "x")
    assert await ann.ask(table.DeleteQueue(1, queue)) == table.Success(1)
    assert (await ann.error(table.GetActiveQueues(2)))[0] == ErrorType.NO_ACTIVE_QUEUES_EXISTING
    assert await ann.finds_nothing(await ann.create("q"))


# Errors that no request can cause by itself


async def test_the_store_is_away(data_dir: Path, dialect: Dialect) -> None:
    """While the store cannot be reached, a put is Error 2, and the connection stays."""
    server = embedded.start(data_dir)
    async with running_node(server.dsn, patience=0.2) as node, connected(node, dialect, "ann") as ann:
        queue = await ann.create("q")
        await ann.put(queue, "x")
        embedded.stop(data_dir)
        put = table.PutMessage(1, message(queue, "y"), [])
        await ann.error(put)  # the connection to the store broke under this one: its outcome is not known
        assert (await ann.error(put))[0] == ErrorType.IO_ERROR
        assert await ann.ask(table.Ping(2)) == table.Pong(2)


@pytest.mark.parametrize(
    ("error", "error_type"),
    [
        (errors.AlreadyExists("x"), ErrorType.UNIQUE_CONSTRAINT),
        (errors.OutcomeUnknown("x"), ErrorType.INTERNAL_ERROR),
        (errors.CallFailed("x"), ErrorType.INTERNAL_ERROR),
        (RuntimeError("a secret"), ErrorType.INTERNAL_ERROR),
    ],
)
def test_other_errors(error: Exception, error_type: ErrorType) -> None:
    """Errors that should not happen have a type too, and faults of the node show a number, not themselves."""
    packet = error_packet(table.GetQueues(1), error)
    assert packet.error_type == error_type
    assert "secret" not in packet.details


def test_details_are_short() -> None:
    """Details are cut where they would outgrow a packet."""
    packet = error_packet(table.GetQueues(1), errors.NoSuchQueue("x" * 100_000))
    assert len(packet.details) == 500
