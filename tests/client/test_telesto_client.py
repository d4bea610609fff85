"""The Telesto client: every method of the report's table 4.1, over the authors' framing."""

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from nuncius.client.errors import CannotConnect, ConnectionLost, InvalidInput, Timeout
from nuncius.client.telesto import (
    Client,
    ClientMode,
    ErrorType,
    Message,
    Queue,
    ReadMode,
    TelestoClient,
    TelestoError,
    new_message,
)
from nuncius.client.telesto_contexts import Contexts
from telesto_thread import node_in_a_thread


@pytest.fixture
def port(dsn: str) -> Iterator[int]:
    """A node's port."""
    with node_in_a_thread(dsn) as number:
        yield number


@pytest.fixture
def connect(port: int) -> Iterator[Callable[..., TelestoClient]]:
    """Makes clients of that node, registered if they have a name; all are closed afterwards."""
    with ExitStack() as opened:

        def new(name: str = "", **options: Any) -> TelestoClient:
            client = opened.enter_context(TelestoClient("127.0.0.1", port, **options))
            if name:
                client.connect(name)
            return client

        yield new


@pytest.fixture
def ann(connect: Callable[..., TelestoClient]) -> TelestoClient:
    """A registered client."""
    return connect("ann")


@pytest.fixture
def bob(connect: Callable[..., TelestoClient]) -> TelestoClient:
    """Another one."""
    return connect("bob")


def identity(client: TelestoClient) -> int:
    assert client.client is not None
    return client.client.client_id


def refused(call: Callable[..., Any], *arguments: Any, **options: Any) -> ErrorType:
    """The type of the error with which this call ends."""
    with pytest.raises(TelestoError) as caught:
        call(*arguments, **options)
    assert caught.value.details
    return caught.value.error_type


def test_ping(connect: Callable[..., TelestoClient]) -> None:
    """A ping needs no client and tells the time of a round trip."""
    assert 0 < connect().ping() < 10


def test_connect_by_name_and_by_id(connect: Callable[..., TelestoClient]) -> None:
    """A new client has a name and a mode; an existing one is known by its id."""
    reader = connect().connect("reader", ClientMode.READ_ONLY)
    assert (reader.name, reader.mode) == ("reader", ClientMode.READ_ONLY)
    assert connect().connect(reader.client_id) == Client(reader.client_id, "reader", ClientMode.READ_ONLY)
    assert refused(connect().connect, "reader") is ErrorType.CLIENT_NAME_NOT_UNIQUE
    assert refused(connect().connect, 999) is ErrorType.CLIENT_NOT_EXISTING
    assert refused(connect().create_queue, "q") is ErrorType.UNEXPECTED_PACKET


def test_delete_client(connect: Callable[..., TelestoClient], ann: TelestoClient) -> None:
    """A deleted client is gone, and its connection may become another's."""
    gone = identity(ann)
    ann.delete_client()
    assert refused(connect().connect, gone) is ErrorType.CLIENT_NOT_EXISTING
    assert ann.connect("ann").client_id != gone


def test_queues(ann: TelestoClient) -> None:
    """Queues are made, found by name and by id, listed and deleted."""
    assert refused(ann.get_queues) is ErrorType.NO_QUEUES_EXISTING
    queue = ann.create_queue("qü")
    assert refused(ann.create_queue, "qü") is ErrorType.QUEUE_NAME_NOT_UNIQUE
    assert ann.get_queue_by_name("qü") == queue
    assert ann.get_queue_by_id(queue.queue_id) == queue == Queue(queue.queue_id, "qü")
    assert ann.get_queues() == [queue]
    ann.delete_queue(queue.queue_id)
    assert refused(ann.get_queue_by_name, "qü") is ErrorType.QUEUE_NOT_EXISTING
    assert refused(ann.get_queue_by_id, queue.queue_id) is ErrorType.QUEUE_NOT_EXISTING


def test_messages(ann: TelestoClient, bob: TelestoClient) -> None:
    """Messages are put, looked at and taken: by priority, by time, and from one sender."""
    queue = ann.create_queue("q")
    assert refused(ann.get_active_queues) is ErrorType.NO_ACTIVE_QUEUES_EXISTING
    assert refused(ann.read_messages, queue.queue_id) is ErrorType.NO_MESSAGES_IN_QUEUE
    for text, priority in (("a", 1), ("b", 9), ("c", 9)):
        ann.put_message(new_message(queue.queue_id, text, priority=priority))
    bob.put_message(new_message(queue.queue_id, "d"))
    assert ann.get_active_queues() == [queue]
    assert [m.text for m in bob.read_messages(queue.queue_id)] == ["a", "b", "c", "d"]
    assert ann.retrieve_message(queue.queue_id).text == "b"
    assert ann.retrieve_message(queue.queue_id, sender_id=identity(bob)).text == "d"
    assert ann.retrieve_message(queue.queue_id, mode=ReadMode.TIME).text == "a"
    last = ann.retrieve_message(queue.queue_id, sender_id=identity(ann), mode=ReadMode.TIME)
    assert isinstance(last, Message)
    assert (last.text, last.priority, last.sender_id) == ("c", 9, identity(ann))


def test_put_into_several_queues(ann: TelestoClient) -> None:
    """A message goes into its queue and the listed ones; without a queue of its own, into those."""
    first, second, third = (ann.create_queue(name).queue_id for name in "abc")
    ann.put_messages(new_message(first, "x"), [second])
    ann.put_messages(new_message(0, "y"), [second, third])
    assert [[m.text for m in ann.read_messages(queue)] for queue in (first, second, third)] == [
        ["x"],
        ["x", "y"],
        ["y"],
    ]
    assert refused(ann.put_messages, new_message(first, "z"), [999]) is ErrorType.QUEUE_NOT_EXISTING
    assert refused(ann.put_messages, new_message(0, "z"), []) is ErrorType.QUEUE_NOT_EXISTING


def test_read_only(connect: Callable[..., TelestoClient], ann: TelestoClient) -> None:
    """A read-only client cannot put."""
    queue = ann.create_queue("q").queue_id
    reader = connect()
    reader.connect("reader", ClientMode.READ_ONLY)
    put = new_message(queue, "x")
    assert refused(reader.put_message, put) is ErrorType.CLIENT_MODE_PERMISSION_VIOLATION


def test_retrieving_blocks(ann: TelestoClient, bob: TelestoClient) -> None:
    """A retrieve waits until there is a message for it, over as many attempts as it takes."""
    queue = ann.create_queue("q").queue_id
    got: list[str] = []
    waiting = threading.Thread(target=lambda: got.append(bob.retrieve_message(queue).text))
    waiting.start()
    with pytest.raises(Timeout):
        ann.retrieve_message(queue, sender_id=identity(bob), timeout=0.1)
    assert waiting.is_alive()
    ann.put_message(new_message(queue, "at last", receiver_id=identity(bob)))
    waiting.join(30)
    assert got == ["at last"]


def test_request_and_response(ann: TelestoClient, bob: TelestoClient) -> None:
    """Each request gets the response to it and no other."""
    queue = ann.create_queue("q").queue_id

    def serve() -> None:
        for _ in range(5):
            request = bob.retrieve_message(queue)
            answer = new_message(
                queue, request.text.upper(), receiver_id=request.sender_id, context=request.context
            )
            bob.put_message(answer)

    service = threading.Thread(target=serve)
    service.start()
    for word in ("one", "two", "three", "four", "five"):
        request = new_message(queue, word, receiver_id=identity(bob))
        assert ann.send_request_response_message(request, timeout=30).text == word.upper()
    service.join()


def test_a_late_response_meets_no_other_request(
    connect: Callable[..., TelestoClient], ann: TelestoClient, bob: TelestoClient
) -> None:
    """The response to a request that was given up is not taken for that to a later one, after a reconnect."""
    queue = ann.create_queue("q").queue_id
    me = identity(ann)
    with pytest.raises(Timeout):
        ann.send_request_response_message(new_message(queue, "old", receiver_id=identity(bob)), timeout=0)
    late = bob.retrieve_message(queue)
    ann.close()
    again = connect()
    again.connect(me)
    bob.put_message(new_message(queue, "late", receiver_id=me, context=late.context))
    with pytest.raises(Timeout):
        again.send_request_response_message(new_message(queue, "new", receiver_id=identity(bob)), timeout=0.1)
    assert bob.retrieve_message(queue).context != late.context


def test_contexts_do_not_repeat() -> None:
    """Contexts of one client after another are all different, positive, and fit into 31 bits."""
    drawn = [context for _ in range(20) for contexts in [Contexts()] for context in _some(contexts)]
    assert len(set(drawn)) == len(drawn)
    assert all(0 < context < 2**31 for context in drawn)


def test_connections_of_one_client_share_its_contexts(
    monkeypatch: pytest.MonkeyPatch, connect: Callable[..., TelestoClient], bob: TelestoClient
) -> None:
    """A client that asks over several connections in the same millisecond uses no context twice."""
    clock = itertools.count(time.time_ns(), 1_000)
    for name in ("time_ns", "monotonic_ns"):
        monkeypatch.setattr(time, name, clock.__next__)
    ann = connect("ann")
    queue, connections = ann.create_queue("q").queue_id, [ann, connect(), connect()]
    for other in connections[1:]:
        other.connect(identity(ann))
    for asker in connections * 3:
        with pytest.raises(Timeout):
            asker.send_request_response_message(new_message(queue, "?", receiver_id=identity(bob)), timeout=0)
    used = [bob.retrieve_message(queue).context for _ in range(9)]
    assert len(set(used)) == len(used)


def test_values_that_do_not_fit(ann: TelestoClient) -> None:
    """What the protocol cannot carry is refused before it is sent, and the connection stays."""
    for text in ("x" * 40_000, "\ud800"):
        with pytest.raises(InvalidInput):
            ann.put_message(new_message(1, text))
    assert ann.ping() > 0


def test_nobody_there() -> None:
    """Without a node there is a clear error."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with TelestoClient("127.0.0.1", taken.getsockname()[1]) as client, pytest.raises(CannotConnect):
            client.ping()


def test_a_node_that_does_not_answer() -> None:
    """A call ends after its timeout, and the connection with it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = silent.getsockname()
        start = time.monotonic()
        with TelestoClient(*address, timeout=0.1) as client, pytest.raises(Timeout):
            client.ping()
        assert time.monotonic() - start >= 0.1


def test_the_node_goes_away(dsn: str) -> None:
    """When the node ends, calls fail with ConnectionLost; a new connect works with the next node."""
    with node_in_a_thread(dsn) as port:
        client = TelestoClient("127.0.0.1", port)
        me = client.connect("ann").client_id
    with pytest.raises(ConnectionLost):
        client.ping()
    with node_in_a_thread(dsn) as port, TelestoClient("127.0.0.1", port) as again:
        assert again.connect(me).name == "ann"


@pytest.mark.parametrize(
    "answer",
    ["00050201020304", "00050300000001", "000005", "000a05010203040b00026e6f"],
    ids=["another packet id", "another packet", "no packet", "an error for another packet"],
)
def test_answers_without_sense(answer: str) -> None:
    """A node that answers something else has lost the thread; the connection ends."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            accepted, _ = server.accept()
            with accepted:
                accepted.recv(100)
                accepted.sendall(bytes.fromhex(answer))

        thread = threading.Thread(target=serve)
        thread.start()
        with TelestoClient(*server.getsockname()) as client, pytest.raises(ConnectionLost):
            client.ping()
        thread.join()


def _some(contexts: Contexts) -> list[int]:
    return [contexts.next() for _ in range(3)]
