"""Telesto's requests other than messages: each is a coroutine that returns its answer.

Two tables list the requests that a connection may send: before it has a client, and after.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from nuncius.broker.errors import InvalidInput, NoSuchClient, NoSuchQueue
from nuncius.broker.model import Message, Queue
from nuncius.doors.telesto import table
from nuncius.doors.telesto.codec import Codec
from nuncius.doors.telesto.errors import Refusal
from nuncius.doors.telesto.table import Answer, ErrorType, Request

if TYPE_CHECKING:
    from nuncius.doors.telesto.session import TelestoSession as Session

PAGE = 32  # messages per lookup: another protocol may have put some of several megabytes
INT32 = 2**31 - 1


def wire_message(message: Message) -> table.Message:
    """Convert a message to this protocol's form.

    Message ids of the store exceed 32 bits, so larger ones start again at 1: neighbours stay distinct and in
    order, and no request of the protocol takes a message's id. Messages of other protocols may have bytes
    that are no text; bytes that are not UTF-8 become U+FFFD.
    """
    return table.Message(
        (message.message_id - 1) % INT32 + 1,
        message.queue_id,
        message.sender_id,
        message.receiver_id,
        message.context,
        message.priority,
        message.time // 1000,
        message.body.decode("utf-8", "replace"),
    )


async def register_client(session: "Session", packet: table.RegisterClient) -> Answer:
    client = await session.broker.clients.register(packet.client_name, packet.mode)
    session.stand_for(client)
    return table.RegisterClientResponse(packet.packet_id, client.client_id)


async def identify_client(session: "Session", packet: table.IdentifyClient) -> Answer:
    if packet.client_id <= 0:
        raise NoSuchClient(f"there is no client {packet.client_id}")
    client = await session.broker.clients.identify(packet.client_id)
    session.stand_for(client)
    return table.IdentifyClientResponse(packet.packet_id, client.mode, client.name)


async def delete_client(session: "Session", packet: table.DeleteClient) -> Answer:
    own = session.client.client_id
    client_id = own if session.codec.dialect is table.Dialect.DEPLOYED else packet.client_id
    await session.broker.clients.delete(client_id)
    if client_id == own:
        session.stand_for(None)
    return table.Success(packet.packet_id)


async def create_queue(session: "Session", packet: table.CreateQueue) -> Answer:
    queue = await session.broker.queues.create(packet.queue_name, caller=session.caller)
    return table.CreateQueueResponse(packet.packet_id, queue.queue_id)


async def delete_queue(session: "Session", packet: table.DeleteQueue) -> Answer:
    await session.broker.queues.delete(packet.queue_id, caller=session.caller)
    return table.Success(packet.packet_id)


async def get_queue_id(session: "Session", packet: table.GetQueueId) -> Answer:
    try:
        queue = await session.broker.queues.find(packet.queue_name)
    except InvalidInput as error:
        raise NoSuchQueue(f"there is no such queue: {error}") from None
    return table.GetQueueIdResponse(packet.packet_id, queue.queue_id)


async def get_queue_name(session: "Session", packet: table.GetQueueName) -> Answer:
    queue = await _queue(session, packet.queue_id)
    return table.GetQueueNameResponse(packet.packet_id, queue.name)


async def get_queues(session: "Session", packet: table.GetQueues) -> Answer:
    queues = _listed(session.codec, await session.broker.queues.all())
    if not queues:
        raise Refusal(ErrorType.NO_QUEUES_EXISTING, "there are no queues")
    return table.GetQueuesResponse(packet.packet_id, queues)


async def get_active_queues(session: "Session", packet: table.GetActiveQueues) -> Answer:
    queues = _listed(session.codec, await session.broker.queues.active(session.client.client_id))
    if not queues:
        raise Refusal(ErrorType.NO_ACTIVE_QUEUES_EXISTING, "no queue holds a message for this client")
    return table.GetActiveQueuesResponse(packet.packet_id, queues)


async def get_messages(session: "Session", packet: table.GetMessages) -> Answer:
    """Return the oldest messages, as many as fit into an answer."""
    found: list[table.Message] = []
    last = 0
    while True:
        page = await session.broker.queues.browse(packet.queue_id, after=last, limit=PAGE)
        found += map(wire_message, page)
        fitting = session.codec.fitting(found)
        if fitting < len(found) or len(page) < PAGE:
            break
        last = page[-1].message_id
    if not found:
        await _queue(session, packet.queue_id)
        raise Refusal(ErrorType.NO_MESSAGES_IN_QUEUE, f"queue {packet.queue_id} is empty")
    if not fitting:
        raise too_large(found[0])
    return table.GetMessagesResponse(packet.packet_id, found[:fitting])


async def put_into_several(session: "Session", packet: table.PutMessage) -> Answer:
    queue_ids = [packet.message.queue_id, *packet.queue_ids]
    letter = session.letter(packet.message)
    await session.broker.queues.put_into_all(queue_ids, letter, caller=session.caller)
    return table.Success(packet.packet_id)


def too_large(message: table.Message) -> Refusal:
    return Refusal(
        ErrorType.INTERNAL_ERROR,
        f"message {message.message_id} of queue {message.queue_id} is too large for this protocol"
        f" ({len(message.text)} characters); it stays there, read it with another client",
    )


async def _queue(session: "Session", queue_id: int) -> Queue:
    if queue_id <= 0:
        raise NoSuchQueue(f"there is no queue {queue_id}")
    return await session.broker.queues.find_by_id(queue_id)


def _listed(codec: Codec, queues: Sequence[Queue]) -> list[table.Queue]:
    """Return the first queues by id, as many as fit into an answer."""
    listed = [table.Queue(queue.queue_id, queue.name) for queue in queues]
    return listed[: codec.fitting(listed)]


Requests = dict[type[Request], Callable[[Any, Any], Coroutine[Any, Any, Answer]]]

BEFORE_AUTHENTICATION: Requests = {
    table.RegisterClient: register_client,
    table.IdentifyClient: identify_client,
}
AFTER_AUTHENTICATION: Requests = {
    table.DeleteClient: delete_client,
    table.CreateQueue: create_queue,
    table.DeleteQueue: delete_queue,
    table.GetQueueId: get_queue_id,
    table.GetQueueName: get_queue_name,
    table.GetQueues: get_queues,
    table.GetActiveQueues: get_active_queues,
    table.GetMessages: get_messages,
    table.PutMessage: put_into_several,  # a put into one queue is handled by the session
}
