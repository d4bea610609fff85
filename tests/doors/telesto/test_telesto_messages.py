"""What the packets do to messages, in both dialects: putting, reading, and what is refused."""

import time

import pytest

from nuncius.broker.model import Letter
from nuncius.doors.telesto import table
from nuncius.doors.telesto.table import ClientMode, Dialect, ErrorType, ReadMode
from telesto_peer import Node, Peer, connected, message


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


async def test_read_only_clients(ann: Peer, stranger: Peer) -> None:
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
