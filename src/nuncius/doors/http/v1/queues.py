"""Queues: messages that are taken once, by priority or by age."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec

from nuncius.broker import future
from nuncius.broker.caller import Caller
from nuncius.broker.limits import decode_headers, encode_headers
from nuncius.broker.model import BY_PRIORITY, BY_TIME, Letter, Queue, QueueInfo
from nuncius.broker.model import Message as Taken
from nuncius.doors.http.api.operations import operation
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.errors import Failed
from nuncius.doors.http.exchange import Exchange
from nuncius.doors.http.v1.model import (
    MANY,
    Encoding,
    Limit,
    Listing,
    MessageHeaders,
    Name,
    Offset,
    Removed,
    Time,
    Wait,
    to_bytes,
    to_text,
)
from nuncius.doors.http.v1.topics import raw_headers

Priority = Annotated[int, msgspec.Meta(ge=1, le=10)]


class NewQueue(msgspec.Struct, forbid_unknown_fields=True):
    name: Name


class V1QueueState(msgspec.Struct):
    name: str
    messages: int
    oldest: Time | None


class QueueStates(msgspec.Struct):
    """`next` is the value of `after` for the next page; null at the end of the list."""

    queues: list[V1QueueState]
    next: str | None


class NewLetter(msgspec.Struct, forbid_unknown_fields=True):
    """A message to put. `sender` and `receiver` are client names; without a receiver any client may take
    it."""

    body: str
    encoding: Encoding = "utf-8"
    priority: Priority = 5
    sender: Name | None = None
    receiver: Name | None = None
    headers: MessageHeaders = {}


class NewLetters(msgspec.Struct, forbid_unknown_fields=True):
    """Messages that are put together, all or none."""

    messages: Annotated[list[NewLetter], MANY]


class RawPut(msgspec.Struct):
    priority: Priority = 5


class V1Put(msgspec.Struct):
    """The ids of the messages; those that were stored before, under the same Idempotency-Key, have none."""

    ids: list[int]


class Taking(msgspec.Struct, forbid_unknown_fields=True):
    """`order`: by priority, the oldest first among equals, or by age alone."""

    limit: Limit = 1
    wait: Wait = 0
    order: Literal["priority", "age"] = "priority"
    receiver: Name | None = None
    sender: Name | None = None


class QueueMessage(msgspec.Struct):
    id: int
    priority: int
    time: Time
    body: str
    encoding: Encoding
    sender_id: int
    receiver_id: int
    headers: dict[str, str] = {}


class QueueMessages(msgspec.Struct):
    messages: list[QueueMessage]


class Browsing(msgspec.Struct):
    after: Offset = 0
    limit: Limit = 100


@operation("GET", "/v1/queues")
async def list_queues(desk: Desk, query: Listing) -> QueueStates:
    """All queues, in the order of their names."""
    page = await desk.pages.queues(query.after, query.limit)
    return QueueStates([_state(info) for info in page.rows], page.next)


@operation("POST", "/v1/queues", status=201)
async def create_queue(desk: Desk, body: NewQueue, exchange: Exchange) -> V1QueueState:
    """Create a queue."""
    queue = await desk.broker.queues.create(body.name, caller=exchange.caller)
    return V1QueueState(queue.name, 0, None)


@operation("GET", "/v1/queues/{queue}")
async def get_queue(desk: Desk, queue: Name) -> V1QueueState:
    """A queue and its number of messages."""
    found = await desk.broker.queues.info([queue])
    if not found:
        raise Failed(404, "not_found", f"there is no queue {queue!r}")
    return _state(found[0])


@operation("DELETE", "/v1/queues/{queue}", status=204)
async def delete_queue(desk: Desk, queue: Name, exchange: Exchange) -> None:
    """Delete a queue and its messages."""
    found = await find_queue(desk, queue)
    await desk.broker.queues.delete(found.queue_id, caller=exchange.caller)


@operation("POST", "/v1/queues/{queue}/purge")
async def purge_queue(desk: Desk, queue: Name, exchange: Exchange) -> Removed:
    """Remove all messages of a queue."""
    found = await find_queue(desk, queue)
    return Removed(await desk.broker.queues.purge(found.queue_id, caller=exchange.caller))


@operation("POST", "/v1/queues/{queue}/messages", status=201)
async def put_message(desk: Desk, queue: Name, body: NewLetter, key: str | None, exchange: Exchange) -> V1Put:
    """Put a message into a queue."""
    return await _put(desk, queue, [await _letter(desk, body)], key, (body,), exchange.caller)


@operation("POST", "/v1/queues/{queue}/messages/batch", status=201)
async def put_messages(
    desk: Desk, queue: Name, body: NewLetters, key: str | None, exchange: Exchange
) -> V1Put:
    """Put messages into a queue, all or none."""
    letters = [await _letter(desk, each) for each in body.messages]
    return await _put(desk, queue, letters, key, body.messages, exchange.caller)


@operation("POST", "/v1/queues/{queue}/messages/raw", status=201)
async def put_raw(
    desk: Desk, queue: Name, query: RawPut, raw: bytes, key: str | None, exchange: Exchange
) -> V1Put:
    """Put the request's body into a queue as one message. Its content type is kept with it."""
    headers = raw_headers(exchange)
    letter = Letter(raw, query.priority, headers=headers[0] if headers else None)
    return await _put(desk, queue, [letter], key, (raw, query, headers), exchange.caller)


@operation("GET", "/v1/queues/{queue}/messages")
async def browse_queue(desk: Desk, queue: Name, query: Browsing, exchange: Exchange) -> QueueMessages:
    """Messages of a queue, the oldest first, without taking them; those after the given id."""
    found = await find_queue(desk, queue)
    async with exchange.replies:
        messages = await desk.broker.queues.browse(found.queue_id, after=query.after, limit=query.limit)
    return QueueMessages([queue_message(each) for each in messages])


@operation("POST", "/v1/queues/{queue}/take")
async def take_messages(desk: Desk, queue: Name, body: Taking, exchange: Exchange) -> QueueMessages:
    """Take messages out of a queue. A message is taken once; none is taken for a client that has
    disconnected."""
    found = await find_queue(desk, queue)
    taking = desk.broker.queues.take(
        found.queue_id,
        await client_id(desk, body.receiver),
        sender=await client_id(desk, body.sender),
        mode=BY_PRIORITY if body.order == "priority" else BY_TIME,
        limit=body.limit,
        wait=body.wait,
        caller=exchange.caller,
    )
    with desk.broker.consumers.of_queue(found.queue_id):
        messages = await exchange.while_connected(taking) if body.wait else await taking
    return QueueMessages([queue_message(each) for each in messages])


async def find_queue(desk: Desk, name: str) -> Queue:
    return desk.broker.queues.names.known(name) or await desk.broker.queues.names.find(name)


async def client_id(desk: Desk, name: str | None) -> int:
    return 0 if name is None else (await desk.broker.clients.find_or_register(name)).client_id


async def _letter(desk: Desk, new: NewLetter) -> Letter:
    return Letter(
        to_bytes(new.body, new.encoding),
        new.priority,
        await client_id(desk, new.sender),
        await client_id(desk, new.receiver),
        headers=encode_headers(new.headers),
    )


async def _put(
    desk: Desk,
    name: str,
    letters: list[Letter],
    key: str | None,
    content: Sequence[object],
    caller: Caller,
) -> V1Put:
    queue = await find_queue(desk, name)
    publisher = None if key is None else await desk.identity(key, content, "queue", name)
    stored, done = future.new()
    count = 0 if publisher is None else 1
    desk.broker.queues.put_soon(
        queue.queue_id, letters, done, publisher=publisher, count=count, caller=caller
    )
    return V1Put(list((await stored).ids))


def _state(info: QueueInfo) -> V1QueueState:
    oldest = None if info.oldest is None else datetime.fromtimestamp(info.oldest / 1e6, UTC)
    return V1QueueState(info.name, info.depth, oldest)


def queue_message(taken: Taken) -> QueueMessage:
    text, encoding = to_text(taken.body)
    return QueueMessage(
        taken.message_id,
        taken.priority,
        datetime.fromtimestamp(taken.time / 1e6, UTC),
        text,
        encoding,
        taken.sender_id,
        taken.receiver_id,
        decode_headers(taken.headers) if taken.headers else {},
    )


OPERATIONS = (
    list_queues,
    create_queue,
    get_queue,
    delete_queue,
    purge_queue,
    put_message,
    put_messages,
    put_raw,
    browse_queue,
    take_messages,
)
