"""The changes that a visitor can make. Each returns a sentence on its result, and is logged with the visitor.

A read-only console refuses all of them here, whatever a browser sends.
"""

import logging
from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import TypeVar

from nuncius.broker import Broker, future
from nuncius.broker.caller import Caller
from nuncius.broker.errors import InvalidInput
from nuncius.broker.limits import encode_headers
from nuncius.broker.model import Letter, Message, Stored
from nuncius.broker.observe.facts import Facts
from nuncius.console.nodes import NodeClient
from nuncius.console.parts.words import number, plural, time

log = logging.getLogger(__name__)

T = TypeVar("T")
AT_ONCE = 1000  # the limit of messages that are moved back together


class ReadOnly(Exception):
    """This console is read-only."""


class Changes:
    def __init__(self, broker: Broker, facts: Facts, nodes: NodeClient, *, read_only: bool) -> None:
        self._broker = broker
        self._facts = facts
        self._nodes = nodes
        self.read_only = read_only

    # Queues

    async def create_queue(self, who: str, name: str) -> str:
        await self._do(who, "create queue", self._broker.queues.create(name, caller=caller(who)), queue=name)
        return f"Made the queue {name!r}."

    async def put(self, who: str, queue: str, body: bytes, priority: int) -> str:
        stored = await self._do(who, "put", self._put(who, queue, Letter(body, priority)), queue=queue)
        return f"Put message {stored.ids[0]} into {queue!r}."

    async def _put(self, who: str, queue: str, letter: Letter) -> Stored:
        found = await self._broker.queues.find(queue)
        stored, done = future.new()
        self._broker.queues.put_soon(found.queue_id, [letter], done, caller=caller(who))
        return await stored  # type: ignore[no-any-return]

    async def take(self, who: str, queue_id: int) -> Message | None:
        """Take the next message of a queue, which removes it."""
        work = self._broker.queues.take(queue_id, caller=caller(who))
        taken = await self._do(who, "take", work, queue_id=queue_id)
        return taken[0] if taken else None

    async def move(self, who: str, queue_id: int, ids: Sequence[int], target: str) -> str:
        found = await self._broker.queues.find(target)
        work = self._facts.actions.move(queue_id, ids, found.queue_id)
        moved = await self._do(who, "move", work, queue_id=queue_id, ids=_some(ids), target=target)
        return f"Moved {plural(moved, 'message')} to {target!r}."

    async def remove(self, who: str, queue_id: int, ids: Sequence[int]) -> str:
        work = self._facts.actions.remove(queue_id, ids)
        removed = await self._do(who, "remove", work, queue_id=queue_id, ids=_some(ids))
        return f"Removed {plural(removed, 'message')}."

    async def purge_queue(self, who: str, queue_id: int) -> str:
        work = self._broker.queues.purge(queue_id, caller=caller(who))
        removed = await self._do(who, "purge queue", work, queue_id=queue_id)
        return f"Removed {plural(removed, 'message')}; the queue is empty."

    # Topics

    async def publish(
        self, who: str, topic: str, body: bytes, key: str | None = None, headers: dict[str, str] | None = None
    ) -> str:
        work = self._broker.topics.publish(
            topic,
            [body],
            keys=None if key is None else [key],
            headers=[encode_headers(headers)] if headers else None,
            caller=caller(who),
        )
        placed = await self._do(who, "publish", work, topic=topic)
        return f"Published to {topic!r}: partition {placed.partition}, offset {placed.offset}."

    async def republish(self, who: str, topic: str, partition: int, offset: int, target: str) -> str:
        work = self._facts.actions.republish(topic, partition, offset, target)
        facts = {"topic": topic, "partition": partition, "offset": offset, "target": target}
        placed = await self._do(who, "republish", work, **facts)
        return f"Published again to {target!r}: partition {placed.partition}, offset {placed.offset}."

    async def purge_topic(self, who: str, topic: str) -> str:
        work = self._broker.topics.purge(topic, caller=caller(who))
        purged = await self._do(who, "purge topic", work, topic=topic)
        return f"{plural(purged, 'message')} of {topic!r} can be read no more."

    # Subscriptions

    async def seek(
        self, who: str, topic: str, subscriber: str, where: str | datetime | dict[int, int]
    ) -> str:
        """Move a subscription. `where`: earliest, latest, a time, or the next offset of each partition."""
        shown = time(where) if isinstance(where, datetime) else str(where)
        facts = {"topic": topic, "subscriber": subscriber, "where": shown}
        await self._do(who, "seek", self._seek(topic, subscriber, where), **facts)
        return f"{subscriber!r} goes on in {topic!r} from {shown}."

    async def _seek(self, topic: str, subscriber: str, where: str | datetime | dict[int, int]) -> None:
        subscription = await self._broker.subscriptions.find(topic, subscriber)
        positions = self._broker.positions
        if isinstance(where, datetime):
            await positions.seek_time(subscription, where)
        elif isinstance(where, dict):
            await positions.seek(subscription, where)
        elif where == "earliest":
            await positions.seek_earliest(subscription)
        elif where == "latest":
            await positions.seek_latest(subscription)
        else:
            raise InvalidInput("seek to the earliest, the latest, a time or offsets")

    async def unsubscribe(self, who: str, topic: str, subscriber: str) -> str:
        work = self._broker.subscriptions.unsubscribe(topic, subscriber)
        await self._do(who, "remove subscription", work, topic=topic, subscriber=subscriber)
        return f"{subscriber!r} is not subscribed to {topic!r} any more."

    # Dead letters

    async def retry(self, who: str, queue_id: int) -> str:
        work = self._facts.actions.retry_now(queue_id)
        retried = await self._do(who, "retry", work, queue_id=queue_id)
        return f"{plural(retried, 'message')} that failed: the next attempt is now."

    async def revive(self, who: str, queue_id: int, ids: Sequence[int]) -> str:
        work = self._facts.actions.revive_messages(queue_id, ids)
        moved = await self._do(who, "move back", work, queue_id=queue_id, ids=_some(ids))
        return f"Moved {plural(moved, 'message')} back to where {'it' if moved == 1 else 'they'} came from."

    async def revive_entry(self, who: str, topic: str, partition: int, offset: int) -> str:
        work = self._facts.actions.revive_entry(topic, partition, offset)
        await self._do(who, "publish anew", work, topic=topic, partition=partition, offset=offset)
        return f"Published message {number(offset)} anew where it came from."

    # Clients and nodes

    async def forget_nodes(self, who: str, node_ids: Sequence[int]) -> str:
        work = self._facts.actions.forget_nodes(node_ids)
        gone = await self._do(who, "remove nodes", work, node_ids=_some(node_ids))
        kept = len(node_ids) - gone
        rest = f" Kept {number(kept)}: alive, or waited for because of their partitions." if kept else ""
        return f"Removed {plural(gone, 'node')}.{rest}"

    async def disconnect(self, who: str, node: str, connection: str) -> str:
        work = self._nodes.disconnect(node, connection)
        await self._do(who, "disconnect", work, node=node, connection=connection)
        return f"Connection {connection} of {node} is closed."

    async def _do(self, who: str, what: str, work: Awaitable[T], **facts: object) -> T:
        """Make a change and log it, unless the console is read-only."""
        if self.read_only:
            if hasattr(work, "close"):
                work.close()
            log.warning("refused: this console is read only", extra={"who": who, "what": what, **facts})
            raise ReadOnly("this console is read only")
        try:
            result = await work
        except Exception as error:
            log.info("not changed", extra={"who": who, "what": what, **facts, "error": str(error)})
            raise
        log.info("changed", extra={"who": who, "what": what, **facts})
        return result


def caller(who: str) -> Caller:
    """Return the caller for a visitor's change."""
    return Caller("console", "console", who)


def _some(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids[:20])) + ("..." if len(ids) > 20 else "")
