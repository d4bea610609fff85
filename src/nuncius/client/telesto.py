"""Telesto's own client, in Python: the methods of table 4.1 of its report, over the authors' framing.

One plain socket, one request at a time, nothing in the background. It shares only the packet codec with the
rest of Nuncius, so it is an independent check of the Telesto listener. Use `Client` for new programs.
"""

import itertools
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar, overload

import msgspec

from nuncius.client.errors import CannotConnect, ConnectionLost, InvalidInput, NunciusError, Timeout
from nuncius.client.telesto_contexts import Contexts, contexts_of
from nuncius.doors.telesto import table
from nuncius.doors.telesto.codec import Codec, DoesNotFit
from nuncius.doors.telesto.table import (
    Answer,
    ClientMode,
    Dialect,
    Error,
    ErrorType,
    Message,
    Queue,
    ReadMode,
    Request,
)

__all__ = [
    "Client",
    "ClientMode",
    "ErrorType",
    "Message",
    "Queue",
    "ReadMode",
    "TelestoClient",
    "TelestoError",
    "new_message",
]

A = TypeVar("A", bound=Answer)

MAX_ID = 2**31 - 1


def new_message(
    queue_id: int, text: str, *, priority: int = 5, receiver_id: int = 0, context: int = 0
) -> Message:
    """Create a message to put; the node sets its id, sender and time."""
    return Message(0, queue_id, 0, receiver_id, context, priority, 0, text)


class TelestoError(NunciusError):
    """The node refused a request; `error_type` and `details` say why."""

    def __init__(self, error_type: ErrorType, details: str) -> None:
        super().__init__(f"{error_type.name}: {details}" if details else error_type.name)
        self.error_type = error_type
        self.details = details


class Client(table.Record):
    """The client that a connection is identified as."""

    client_id: int
    name: str
    mode: ClientMode


class TelestoClient:
    """A connection to a Telesto node. `timeout` limits the wait for the answer to one packet. `retry_delay`
    is the least time between two attempts of a blocking read; a Nuncius node holds each attempt for about as
    long, so that there is no extra delay."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9001,
        *,
        timeout: float = 30.0,
        retry_delay: float = 0.040,
    ) -> None:
        self._address = (host, port)
        self._timeout = timeout
        self._retry_delay = retry_delay
        self._socket: socket.socket | None = None
        self._codec = Codec(Dialect.DEPLOYED, Answer)
        self._packet_ids = itertools.count()
        self._contexts = Contexts()
        self.client: Client | None = None

    # Setup

    def ping(self) -> float:
        """Measure the round trip to the node, in seconds."""
        start = time.perf_counter()
        self._call(table.Ping(self._next_id()), table.Pong)
        return time.perf_counter() - start

    @overload
    def connect(self, client: str, mode: ClientMode = ClientMode.FULL) -> Client: ...
    @overload
    def connect(self, client: int) -> Client: ...
    def connect(self, client: str | int, mode: ClientMode = ClientMode.FULL) -> Client:
        """Identify as a new client, by name and mode, or as an existing one, by id. After a lost connection,
        this opens a new one."""
        if isinstance(client, str):
            new = self._call(
                table.RegisterClient(self._next_id(), client, mode), table.RegisterClientResponse
            )
            self.client = Client(new.client_id, client, ClientMode(mode))
        else:
            known = self._call(table.IdentifyClient(self._next_id(), client), table.IdentifyClientResponse)
            self.client = Client(client, known.client_name, ClientMode(known.mode))
        self._contexts = contexts_of(self.client.client_id)
        return self.client

    def delete_client(self) -> None:
        """Delete the client of this connection, which may then identify as another."""
        self._call(table.DeleteClient(self._next_id()), table.Success)
        self.client = None

    # Queues

    def create_queue(self, name: str) -> Queue:
        """Create a queue."""
        answer = self._call(table.CreateQueue(self._next_id(), name), table.CreateQueueResponse)
        return Queue(answer.queue_id, name)

    def delete_queue(self, queue_id: int) -> None:
        """Delete a queue and its messages."""
        self._call(table.DeleteQueue(self._next_id(), queue_id), table.Success)

    def get_queue_by_name(self, name: str) -> Queue:
        """Return the queue of that name."""
        answer = self._call(table.GetQueueId(self._next_id(), 0, name), table.GetQueueIdResponse)
        return Queue(answer.queue_id, name)

    def get_queue_by_id(self, queue_id: int) -> Queue:
        """Return the queue of that id."""
        answer = self._call(table.GetQueueName(self._next_id(), queue_id), table.GetQueueNameResponse)
        return Queue(queue_id, answer.queue_name)

    def get_queues(self) -> list[Queue]:
        """Return all queues."""
        return self._call(table.GetQueues(self._next_id()), table.GetQueuesResponse).queues

    def get_active_queues(self) -> list[Queue]:
        """Return the queues that have messages for this client."""
        return self._call(table.GetActiveQueues(self._next_id()), table.GetActiveQueuesResponse).queues

    def read_messages(self, queue_id: int) -> list[Message]:
        """Return messages of a queue without taking them, oldest first, as many as fit into an answer."""
        return self._call(table.GetMessages(self._next_id(), queue_id), table.GetMessagesResponse).messages

    # Messages

    def put_message(self, message: Message) -> None:
        """Put a message into its queue."""
        self._call(table.PutMessage(self._next_id(), message, []), table.Success)

    def put_messages(self, message: Message, queue_ids: list[int]) -> None:
        """Put a message into its queue, if it has one, and into all of these, or into none."""
        own, *others = [message.queue_id, *queue_ids] if message.queue_id else queue_ids or [0]
        first = _with(message, queue_id=own)
        self._call(table.PutMessage(self._next_id(), first, others), table.Success)

    def send_request_response_message(self, message: Message, timeout: float | None = None) -> Message:
        """Put a request under a context of its own and wait for the reply: a message in the same queue, for
        this client, with the same context. Raises Timeout if none arrives in time."""
        context = self._contexts.next()
        self.put_message(_with(message, context=context))
        return self._retry(lambda: table.ReadResponse(self._next_id(), message.queue_id, context), timeout)

    def retrieve_message(
        self,
        queue_id: int,
        *,
        sender_id: int = 0,
        mode: ReadMode = ReadMode.PRIORITY,
        timeout: float | None = None,
    ) -> Message:
        """Take a message from a queue, the first by priority or by age, from any or from one sender. Waits
        until there is one. Raises Timeout if none arrives in time."""
        return self._retry(lambda: table.ReadMessage(self._next_id(), queue_id, sender_id, mode), timeout)

    # The connection

    def close(self) -> None:
        """Close the connection. The client stays registered."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self.client = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _retry(self, attempt: Callable[[], Request], timeout: float | None) -> Message:
        """Repeat a read while the node has no message."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            start = time.monotonic()
            try:
                (message,) = self._call(attempt(), table.ReadMessageResponse).messages
            except TelestoError as error:
                if error.error_type is not ErrorType.NO_MESSAGES_RETRIEVED:
                    raise
            else:
                return message
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                raise Timeout(f"no message within {timeout:g} seconds")
            time.sleep(max(0.0, start + self._retry_delay - now))

    def _next_id(self) -> int:
        return next(self._packet_ids) % MAX_ID + 1

    def _call(self, request: Request, expected: type[A]) -> A:
        try:
            data = self._codec.encode(request)
        except DoesNotFit as error:
            raise InvalidInput(str(error)) from error
        connection = self._opened()
        try:
            connection.sendall(data)
            answer = self._receive(connection)
        except TimeoutError as error:
            self.close()
            raise Timeout(f"no answer within {self._timeout:g} seconds") from error
        except OSError as error:
            self.close()
            raise ConnectionLost(f"the connection broke during the call ({error})") from error
        if isinstance(answer, Error) and answer.packet_id == request.packet_id:
            raise TelestoError(ErrorType(answer.error_type), answer.details)
        if not isinstance(answer, expected) or answer.packet_id != request.packet_id:
            self.close()
            raise ConnectionLost(f"the node answered {answer!r} to {request!r}")
        return answer

    def _opened(self) -> socket.socket:
        if self._socket is None:
            try:
                self._socket = socket.create_connection(self._address, self._timeout)
            except OSError as error:
                host, port = self._address
                raise CannotConnect(f"no node answers at {host}:{port} ({error})") from error
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._codec = Codec(Dialect.DEPLOYED, Answer)
        return self._socket

    def _receive(self, connection: socket.socket) -> object:
        while True:
            data = connection.recv(65536)
            if not data:
                raise ConnectionResetError("the node closed the connection")
            events = self._codec.receive(data)
            if events:
                return events[0] if len(events) == 1 else events


def _with(message: Message, **changes: int) -> Message:
    changed: Message = msgspec.structs.replace(message, **changes)
    return changed
