"""The policy of consumers that get one message at a time, of all partitions in turn, and cannot acknowledge.

A node reads ahead and knows an older position of the consumer; PostgreSQL knows the current one. A message is
delivered only after the position was moved from exactly its offset to the next one. So several nodes may read
for one consumer, and none delivers a message that another has delivered. A node that finds the position
elsewhere drops what it knows and begins again.

"Nothing" is answered only after a look at the store that began after the request came.
"""

import asyncio
from collections import deque
from functools import partial
from typing import Any

from nuncius.broker.background.actors import NoSuchConsumer, NumberedConsumer
from nuncius.broker.caller import Caller
from nuncius.broker.delivery.cursor import Cursor
from nuncius.broker.delivery.pull_requests import Done, PullRequest, PullServices, RepeatableRequests
from nuncius.broker.errors import NoSuchTopic
from nuncius.store.calls.moving import ELSEWHERE, MOVED, MoveCall
from nuncius.store.calls.unread import ConsumerCall

AHEAD = 2000  # entries that are read ahead for a consumer, over all its partitions
# A partition that was empty at the last look may have entries now, while others never run dry: look again
# after so many seconds, and some more for each partition.
LOOK_SECONDS = 1.0
LOOK_SECONDS_EACH = 0.01


class Puller:
    """The requests of one consumer, served in their order."""

    def __init__(self, consumer: NumberedConsumer, services: PullServices, caller: Caller) -> None:
        """`caller` is the first that consumes. Requests of other connections stand in the same line."""
        self.consumer = consumer
        self._caller = Caller(caller.door, f"consumer-{consumer.consumer_id}")
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._cursor: Cursor | None = None
        self._waiting: deque[PullRequest] = deque()
        self._numbers = 0  # requests so far
        self._repeatable = RepeatableRequests(consumer, services, self._enter, self._caller)
        self._is_fetching = self._is_looking = False
        self._looked_for = 0  # requests up to this number came before the last look
        self._look_at = 0.0
        self._version = -1
        self._under_way = 0  # messages for which the position is being moved
        self._is_lost = False  # what is known may be outdated

    @property
    def is_idle(self) -> bool:
        return not (self._waiting or self._is_busy or self._repeatable)

    @property
    def _is_busy(self) -> bool:
        return bool(self._under_way) or self._is_fetching or self._is_looking

    def ask(self, done: Done, key: str | None) -> None:
        """Request one message. Requests with the same key get the same message."""
        if key is None:
            self._enter(PullRequest(done, None))
        else:
            self._repeatable.ask(done, key)

    def begin_anew(self) -> None:
        """Drop what is known and look again, because it may be outdated."""
        self._is_lost = True
        self._serve()

    def _enter(self, request: PullRequest) -> None:
        self._numbers += 1
        request.number = self._numbers
        self._waiting.append(request)
        self._serve()

    def _serve(self) -> None:
        waiting, cursor = self._waiting, self._cursor
        if self._is_lost or cursor is None:
            if waiting and not self._is_busy:
                self._look_afresh()
            return
        while waiting and (found := cursor.take_one()) is not None:
            self._hand_out(waiting.popleft(), *found)
        if waiting and not self._is_fetching:
            if not cursor.is_dry:
                self._is_fetching = True
                self._services.start(self._fetch(cursor))
            elif not self._is_looking:
                while waiting and waiting[0].number <= self._looked_for:
                    waiting.popleft().done(None)
                if waiting:
                    self._look(cursor)
        if (
            not (cursor.is_dry or self._is_looking)
            and self._loop.time() >= self._look_at
            and cursor.version != self._version
        ):
            self._look(cursor)

    async def _fetch(self, cursor: Cursor) -> None:
        try:
            found = await cursor.look(1, self._caller)
        except Exception as error:  # no other partition had anything
            self._is_fetching = False
            self._fail(error)
            return
        self._is_fetching = False
        if found is not None and self._waiting and not self._is_lost:
            partition_id, _ = cursor.places[found.partition]
            self._hand_out(self._waiting.popleft(), partition_id, found.first_offset, found.entries.bodies[0])
        elif found is not None:  # other requests were served meanwhile
            cursor.rewind(found.partition, (cursor.places[found.partition][0], found.first_offset))
        self._serve()

    # Handing out

    def _hand_out(self, request: PullRequest, partition_id: int, offset: int, body: bytes) -> None:
        self._under_way += 1
        done, me = partial(self._moved, request, body), self.consumer.subscription_id
        self._services.advance(MoveCall(done, self._caller, me, partition_id, offset + 1, request.key))

    def _moved(self, request: PullRequest, body: bytes, result: Any) -> None:
        self._under_way -= 1
        if result == MOVED:
            request.done(body)
        elif result == ELSEWHERE:
            self._is_lost = True
            if request.key is None:
                self._waiting.appendleft(request)
            else:
                self._repeatable.recall(request)
        else:
            self._is_lost = True
            request.done(result if isinstance(result, Exception) else self._gone())
        if self._is_lost:
            self._serve()

    def _gone(self) -> NoSuchConsumer:
        self._services.forget(self.consumer.consumer_id)
        return NoSuchConsumer(f"there is no consumer {self.consumer.consumer_id} any more")

    def _fail(self, error: Exception) -> None:
        self._is_lost = True
        if isinstance(error, NoSuchTopic):
            error = self._gone()
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            request.done(error)

    # Looking for unread entries

    def _look_afresh(self) -> None:
        self._is_lost = False
        if self._cursor is None:
            self._is_looking = True
            self._services.start(self._begin())
        else:
            self._cursor = Cursor(self._services.tails, self._cursor.topic, ahead=AHEAD)
            self._look(self._cursor)

    async def _begin(self) -> None:
        try:
            topic = await self._services.find_topic(self.consumer.topic)
        except Exception as error:
            self._is_looking = False
            self._fail(error)
        else:
            self._cursor = Cursor(self._services.tails, topic, ahead=AHEAD)
            self._look(self._cursor)

    def _look(self, cursor: Cursor) -> None:
        self._is_looking = True
        self._version = cursor.version
        if not self._under_way:
            cursor.forget_dry()  # from here on the store knows better
        done = partial(self._looked, self._numbers)
        self._services.looking.submit(ConsumerCall(done, self.consumer.subscription_id))

    def _looked(self, number: int, result: Any) -> None:
        self._is_looking = False
        cursor = self._cursor
        if cursor is None or not isinstance(result, list):
            self._fail(result if isinstance(result, Exception) else self._gone())
            return
        self._looked_for = number
        self._look_at = self._loop.time() + LOOK_SECONDS + LOOK_SECONDS_EACH * len(result)
        for place in result:
            cursor.resume(*place)
        self._serve()
