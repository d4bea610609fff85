"""Requests of the native protocol about queues and clients, besides Put and Take."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from nuncius.broker.errors import InvalidInput
from nuncius.broker.model import Letter
from nuncius.doors.native.convert import seconds, wire_message
from nuncius.wire import packets
from nuncius.wire.packets import Packet

if TYPE_CHECKING:
    from nuncius.doors.native.session import NativeSession as Session


async def ask(session: "Session", packet: packets.Ask) -> Packet:
    session.may_write()
    queue = await session.broker.queues.names.find(packet.queue)
    letter = Letter(packet.body, packet.priority, session.client.client_id, headers=packet.headers)
    answers = await session.broker.queues.ask(
        queue.queue_id,
        letter,
        seconds(packet.wait_ms),
        caller=session.caller,
        is_stalled=session.wire.is_stalled,
    )
    return packets.Messages(packet.request, [wire_message(m) for m in answers])


async def browse(session: "Session", packet: packets.Browse) -> Packet:
    if packet.limit < 1:
        raise InvalidInput("browse at least one message")
    queue = await session.broker.queues.find(packet.queue)
    async with session.replies:
        found = await session.broker.queues.browse(queue.queue_id, after=packet.after, limit=packet.limit)
    return packets.Messages(packet.request, [wire_message(m) for m in found])


async def create_queue(session: "Session", packet: packets.CreateQueue) -> Packet:
    session.may_write()
    queue = await session.broker.queues.create(packet.queue, caller=session.caller)
    return packets.Number(packet.request, queue.queue_id)


async def delete_queue(session: "Session", packet: packets.DeleteQueue) -> Packet:
    session.may_write()
    queue = await session.broker.queues.find(packet.queue)
    await session.broker.queues.delete(queue.queue_id, caller=session.caller)
    return packets.Done(packet.request)


async def purge_queue(session: "Session", packet: packets.PurgeQueue) -> Packet:
    session.may_write()
    queue = await session.broker.queues.find(packet.queue)
    return packets.Number(
        packet.request, await session.broker.queues.purge(queue.queue_id, caller=session.caller)
    )


async def list_queues(session: "Session", packet: packets.ListQueues) -> Packet:
    found = await session.broker.queues.info(packet.names)
    states = [packets.QueueState(q.queue_id, q.name, q.depth, q.oldest) for q in found]
    return packets.Queues(packet.request, states)


async def find_client(session: "Session", packet: packets.FindClient) -> Packet:
    client = await session.broker.clients.find(packet.name)
    return packets.Number(packet.request, client.client_id)


async def identify(session: "Session", packet: packets.Identify) -> Packet:
    if session.client.client_id:
        if session.client.name == packet.client:
            return packets.Number(packet.request, session.client.client_id)
        raise InvalidInput("this connection has a client already")
    session.stand_for(await session.broker.clients.find_or_register(packet.client, packet.mode))
    return packets.Number(packet.request, session.client.client_id)


async def forget(session: "Session", packet: packets.Forget) -> Packet:
    if not session.client.client_id:
        raise InvalidInput("this connection has no client")
    await session.broker.clients.delete(session.client.client_id)
    return packets.Done(packet.request)


QUEUE_REQUESTS: dict[type[Packet], Callable[[Any, Any], Coroutine[Any, Any, Packet]]] = {
    packets.Ask: ask,
    packets.Browse: browse,
    packets.CreateQueue: create_queue,
    packets.DeleteQueue: delete_queue,
    packets.PurgeQueue: purge_queue,
    packets.ListQueues: list_queues,
    packets.FindClient: find_client,
    packets.Identify: identify,
    packets.Forget: forget,
}
