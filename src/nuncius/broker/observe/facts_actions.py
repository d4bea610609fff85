"""Actions of operators on messages: move, remove, republish, revive dead letters.

To purge queues and topics, and to seek and end subscriptions, call the broker itself: `broker.queues.purge`,
`broker.topics.purge`, `broker.positions.seek`, `broker.subscriptions.unsubscribe`.
"""

from collections.abc import Sequence

from nuncius.broker.errors import InvalidInput, NoSuchQueue, NotFound
from nuncius.broker.limits import encode_headers
from nuncius.broker.observe.facts_cluster import SILENCE
from nuncius.broker.observe.facts_queues import QueueFactsReader
from nuncius.broker.observe.facts_topics import TopicFactsReader
from nuncius.broker.queues.queues import Queues
from nuncius.broker.topics.topics import Topics
from nuncius.store.calls.publishing import Placed
from nuncius.store.queries import query
from nuncius.store.store import Store

FORGET_NODES = query("facts", "forget_nodes")

DEAD = "dead/"
MOST_AT_ONCE = 1000


class NotDead(NotFound):
    """The queue or topic does not hold dead letters."""


class Actions:
    def __init__(
        self,
        store: Store,
        queues: Queues,
        topics: Topics,
        in_queues: QueueFactsReader,
        in_topics: TopicFactsReader,
    ) -> None:
        self._store = store
        self._queues = queues
        self._topics = topics
        self._in_queues = in_queues
        self._in_topics = in_topics

    async def move(self, queue_id: int, message_ids: Sequence[int], target: int) -> int:
        """Move messages to another queue, behind their equals. Return how many were still there."""
        if queue_id == target:
            raise InvalidInput("the messages are in that queue already")
        return await self._move(queue_id, message_ids, target)

    async def remove(self, queue_id: int, message_ids: Sequence[int]) -> int:
        """Remove messages from a queue. Return how many were still there."""
        return await self._move(queue_id, message_ids, None)

    async def _move(
        self, queue_id: int, message_ids: Sequence[int], target: int | None, *, revive: bool = False
    ) -> int:
        if not 1 <= len(message_ids) <= MOST_AT_ONCE:
            raise InvalidInput(f"name 1 to {MOST_AT_ONCE} messages")
        rows = await self._store.call_once("move_messages", queue_id, list(message_ids), target, revive)
        moved: int | None = rows[0][0]
        if moved is None:
            raise NoSuchQueue("one of the queues is not there any more; nothing was moved")
        return moved

    async def message_to_topic(self, queue_id: int, message_id: int, topic: str) -> Placed:
        """Publish a copy of a queue's message. The message stays in the queue."""
        message = await self._in_queues.message(queue_id, message_id)
        return await self._publish(topic, message.body, None, message.headers)

    async def republish(self, topic: str, partition: int, offset: int, target: str) -> Placed:
        """Publish a copy of an entry to the same or another topic."""
        entry = await self._in_topics.entry(topic, partition, offset)
        return await self._publish(target, entry.preview, entry.key, entry.headers)

    async def retry_now(self, queue_id: int) -> int:
        """Redeliver now the messages that wait for their retry. Return how many."""
        rows = await self._store.call("retry_now", queue_id)
        retried: int = rows[0][0]
        return retried

    async def revive_messages(self, queue_id: int, message_ids: Sequence[int]) -> int:
        """Move dead letters back to their queue, as new messages. Return how many were still there."""
        queue = await self._queues.find_by_id(queue_id)
        origin = await self._queues.ensure(origin_of(queue.name))
        return await self._move(queue_id, message_ids, origin.queue_id, revive=True)

    async def revive_entry(self, topic: str, partition: int, offset: int) -> Placed:
        """Publish a dead letter to its topic again. All subscribers get it. The dead letter stays, because
        topics only grow."""
        entry = await self._in_topics.entry(topic, partition, offset)
        headers = {name: value for name, value in entry.headers.items() if not name.startswith("dead-")}
        return await self._publish(origin_of(topic), entry.preview, entry.key, headers)

    async def forget_nodes(self, node_ids: Sequence[int]) -> int:
        """Remove dead nodes from the list. Return how many. Nodes that are alive, and nodes with partitions
        or a store of their own, stay."""
        rows = await self._store.execute(FORGET_NODES, node_ids, SILENCE)
        return len(rows)

    async def _publish(self, topic: str, body: bytes, key: str | None, headers: dict[str, str]) -> Placed:
        return await self._topics.publish(
            topic,
            [body],
            keys=None if key is None else [key],
            headers=[encode_headers(headers)] if headers else None,
        )


def origin_of(name: str) -> str:
    """Return the queue or topic that the dead letters in this one came from."""
    if not name.startswith(DEAD):
        raise NotDead(f"{name!r} does not hold dead letters")
    return name.removeprefix(DEAD)
