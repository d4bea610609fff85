"""What the packets do, in both dialects: clients, queues, and who may do what."""

import time
from pathlib import Path

import pytest
from telesto_peer import Node, Peer, connected, message, running_node

from nuncius.broker import errors
from nuncius.broker.model import Letter
from nuncius.doors.telesto import telesto_table as table
from nuncius.doors.telesto.telesto_errors import error_packet
from nuncius.doors.telesto.telesto_table import (
    ClientMode,
    Dialect,
    ErrorType,
    Queue,
    ReadMode,
    Request,
)
from nuncius.store import embedded

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


async def test_a_client_deletes_itself(node: Node, ann: Peer, stranger: Peer) -> None:
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


# Messages


async def test_a_message_with_all_its_fields(ann: Peer, bob: Peer) -> None:
    """A message is read as it was put; id, sender and time are the node's, whatever the client said."""
    queue = await ann.create("q")
    put = table.Message(5, queue, 99, bob.client_id, 4, 6, 1, "hé \0 🛰")
    before = time.time() * 1000
    assert await ann.ask(table.PutMessage(1, put, [])) == table.Success(1)
    got = await bob.take(queue)
    assert (got.queue_id, got.sender_id, got.receiver_id, got.context, got.priority, got.text) == (
        queue,
        ann.client_id,
        bob.client_id,
        4,
        6,
        "hé \0 🛰",
    )
    assert got.message_id > 0
    assert abs(got.time_of_arrival - before) < 60_000


async def test_order_of_reading(ann: Peer) -> None:
    """By priority the most urgent comes first, the older among equals; by time the oldest comes first."""
    queue = await ann.create("q")
    for text, priority in (("a", 1), ("b", 10), ("c", 10), ("d", 5)):
        await ann.put(queue, text, priority=priority)
    assert (await ann.take(queue, ReadMode.TIME)).text == "a"
    assert [(await ann.take(queue)).text for _ in range(3)] == ["b", "c", "d"]
    assert await ann.finds_nothing(queue)


async def test_receivers_and_senders(ann: Peer, bob: Peer) -> None:
    """A client gets what is for it or for anyone, and from one sender if it asks for that."""
    queue = await ann.create("q")
    await ann.put(queue, "for bob", receiver=bob.client_id, priority=10)
    await ann.put(queue, "from ann")
    await bob.put(queue, "from bob")
    assert (await ann.take(queue, sender=bob.client_id)).text == "from bob"
    assert (await ann.take(queue)).text == "from ann"
    assert await ann.finds_nothing(queue)
    assert (await bob.take(queue)).text == "for bob"


async def test_a_message_for_a_client_to_come(node: Node, dialect: Dialect, ann: Peer) -> None:
    """A message may name a client that does not exist yet; it waits for it."""
    queue = await ann.create("q")
    await ann.put(queue, "welcome", receiver=ann.client_id + 1)
    assert await ann.finds_nothing(queue)
    async with connected(node, dialect, "late") as late:
        assert late.client_id == ann.client_id + 1
        assert (await late.take(queue)).text == "welcome"


async def test_read_response(ann: Peer, bob: Peer) -> None:
    """An answer matches its receiver and its context exactly."""
    queue = await ann.create("q")
    await ann.put(queue, "for anyone", context=5)
    await ann.put(queue, "for ann", context=5, receiver=ann.client_id)
    await ann.put(queue, "other context", context=6, receiver=bob.client_id)
    error_type, _ = await bob.error(table.ReadResponse(1, queue, 5))
    assert error_type == ErrorType.NO_MESSAGES_RETRIEVED
    await ann.put(queue, "the answer", context=5, receiver=bob.client_id)
    answer = await bob.ask(table.ReadResponse(2, queue, 5))
    assert isinstance(answer, table.ReadMessageResponse)
    assert [m.text for m in answer.messages] == ["the answer"]


async def test_read_response_needs_queue_and_context(ann: Peer) -> None:
    """ReadResponse with queue 0 or context 0 is Error 12."""
    queue = await ann.create("q")
    for packet in (table.ReadResponse(1, queue, 0), table.ReadResponse(1, 0, 5)):
        assert (await ann.error(packet))[0] == ErrorType.REQUIRED_PARAMETER_MISSING


async def test_put_into_several_queues(ann: Peer) -> None:
    """A message goes into its own queue and into each listed one, once."""
    first, second, third = [await ann.create(name) for name in "abc"]
    await ann.put(first, "x", second, third, second)
    for queue in (first, second, third):
        assert (await ann.take(queue)).text == "x"
        assert await ann.finds_nothing(queue)


async def test_put_into_several_is_all_or_nothing(ann: Peer) -> None:
    """If one of several queues is missing, nothing is stored, and Error 7 names those that are."""
    queue = await ann.create("q")
    for own, others in ((queue, [997, 998]), (998, [queue, 997]), (0, [queue])):
        error_type, details = await ann.error(table.PutMessage(1, message(own, "x"), others))
        assert error_type == ErrorType.QUEUE_NOT_EXISTING
        missing = {own, *others} - {queue}
        if ann.codec.dialect is Dialect.DEPLOYED:
            assert all(str(queue_id) in details for queue_id in missing)
    assert await ann.finds_nothing(queue)


@pytest.mark.parametrize(
    "bad",
    [
        {"priority": 0},
        {"priority": 11},
        {"priority": -1},
        {"receiver": -1},
        {"context": -1},
    ],
    ids=repr,
)
async def test_values_out_of_range(ann: Peer, bad: dict[str, int]) -> None:
    """A priority outside 1 to 10 or a negative id is Error 12, and nothing is stored, in no queue."""
    first, second = await ann.create("a"), await ann.create("b")
    for others in ([], [second]):
        error_type, _ = await ann.error(table.PutMessage(1, message(first, "x", **bad), others))
        assert error_type == ErrorType.REQUIRED_PARAMETER_MISSING
    assert await ann.finds_nothing(first)
    assert await ann.finds_nothing(second)


async def test_read_modes(ann: Peer) -> None:
    """A read mode that does not exist is Error 12."""
    queue = await ann.create("q")
    for mode in (0, 3):
        error_type, _ = await ann.error(table.ReadMessage(1, queue, 0, mode))
        assert error_type == ErrorType.REQUIRED_PARAMETER_MISSING


async def test_long_texts(ann: Peer) -> None:
    """A text of 2000 characters passes, however many bytes they take; one more is refused, not stored."""
    queue = await ann.create("q")
    for character in ("x", "é", "🛰"):
        error_type, _ = await ann.error(table.PutMessage(1, message(queue, character * 2001), []))
        assert error_type == ErrorType.REQUIRED_PARAMETER_MISSING
        assert await ann.finds_nothing(queue)
        await ann.put(queue, character * 2000)
        assert (await ann.take(queue)).text == character * 2000


async def test_read_only_clients(node: Node, dialect: Dialect, ann: Peer, stranger: Peer) -> None:
    """A read-only client may read but not put: Error 13, wherever it puts."""
    queue = await ann.create("q")
    await stranger.register("reader", ClientMode.READ_ONLY)
    for others in ([], [queue]):
        error_type, _ = await stranger.error(table.PutMessage(1, message(queue, "x"), others))
        assert error_type == ErrorType.CLIENT_MODE_PERMISSION_VIOLATION
    await ann.put(queue, "x")
    assert (await stranger.take(queue)).text == "x"


async def test_bytes_that_are_no_text(node: Node, ann: Peer) -> None:
    """What another door put and is no UTF-8 is shown with replacement characters."""
    queue = await ann.create("q")
    await node.broker.queues.put_into_all([queue], Letter(b"\xff\xfeok"))
    answer = await ann.ask(table.GetMessages(1, queue))
    assert isinstance(answer, table.GetMessagesResponse)
    assert [m.text for m in answer.messages] == ["\ufffd\ufffdok"]
    assert (await ann.take(queue)).text == "\ufffd\ufffdok"


# Errors that no request can cause by itself


async def test_the_store_is_away(data_dir: Path, dialect: Dialect) -> None:
    """While the store cannot be reached, a put is Error 2, and the connection stays."""
    server = embedded.start(data_dir)
    async with running_node(server.dsn, patience=0.2) as node, connected(node, dialect, "ann") as ann:
        queue = await ann.create("q")
        await ann.put(queue, "x")
        embedded.stop(data_dir)
        for _ in range(2):  # the first may have been under way when the store went
            answer = await ann.error(table.PutMessage(1, message(queue, "y"), []))
        assert answer[0] == ErrorType.IO_ERROR
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
