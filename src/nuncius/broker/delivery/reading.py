"""Reading for one consumer, round robin over the partitions.

A node reads ahead and knows an older position of the consumer; PostgreSQL knows the current one. A message is
delivered only after the position was moved from exactly its offset to the next one. So several nodes may read
for one consumer, and none delivers a message that another has delivered. A node that finds the position
elsewhere drops what it has read ahead and begins again.

"Nothing" is answered only after a look at the store that began after the request came.
"""

import asyncio
from collections import deque
from functools import partial
from itertools import islice
from typing import Any

from nuncius.broker.background.actors import NoSuchConsumer, NumberedConsumer
from nuncius.broker.caller import Caller
from nuncius.broker.delivery.reading_parts import Done, Place, PullRequest, PullServices
from nuncius.broker.errors import NoSuchTopic
from nuncius.broker.topics.topic import Topic
from nuncius.store.calls.moving import ELSEWHERE, MOVED, MoveCall
from nuncius.store.calls.unread import RecallCall, Unread, UnreadCall
from nuncius.store.errors import StoreUnavailable

AHEAD = 2000  # entries that are read ahead for a consumer, over all its partitions
LEAST_AHEAD = 16  # of one partition
FETCHES = 32  # at a time
PER_ENTRY = 100  # bytes of memory an entry costs besides its body
# A partition that was empty at the last look may have entries now, while others never run dry: look again
# after so many seconds, and some more for each partition.
LOOK_SECONDS = 1.0
LOOK_SECONDS_EACH = 0.01


class Puller:
    """Reading for one consumer: a line of requests, and a line of partitions to serve them in turn."""

    def __init__(self, consumer: NumberedConsumer, means: PullServices, caller: Caller) -> None:
        """`caller` is the first that consumes. Requests of other connections stand in the same line."""
        self.consumer = consumer
        self._caller = Caller(caller.door, f"consumer-{consumer.consumer_id}")
        self.bytes = 0
        """Size of what is read ahead."""
        self._means = means
        self._loop = asyncio.get_running_loop()
        self._topic: Topic | None = None
        self._waiting: deque[PullRequest] = deque()
        self._numbers = 0  # requests so far
        self._keyed: dict[str, list[Done]] = {}
        self._line: deque[Place] = deque()
        self._places: dict[int, Place] = {}  # those in line, by partition id
        self._reached: dict[int, int] = {}  # by partition id: everything below is delivered, or about to be
        self._fetching = 0
        self._looking = False
        self._looked_for = 0  # requests up to this number came before the last look
        self._look_at = 0.0
        self._version = -1
        self._under_way = 0  # messages for which the position is being moved
        self._lost = False
        self._trouble: Exception | None = None  # partitions that could not be read since the last look

    @property
    def is_idle(self) -> bool:
        return not (self._waiting or self._under_way or self._fetching or self._looking or self._keyed)

    def ask(self, done: Done, key: str | None) -> None:
        """Request one message. Requests with the same key get the same message."""
        if key is None:
            self._enter(PullRequest(done, None))
        elif key in self._keyed:
            self._keyed[key].append(done)  # the first of them asks for all
        else:
            self._keyed[key] = [done]
            self._recall(PullRequest(partial(self._done_with_key, key), key))

    def begin_anew(self) -> None:
        """Drop what is known and look again, because it may be outdated."""
        self._lost = True
        self._serve()

    def _enter(self, request: PullRequest) -> None:
        self._numbers += 1
        request.number = self._numbers
        self._waiting.append(request)
        self._serve()

    def _serve(self) -> None:
        waiting, line = self._waiting, self._line
        while waiting and line and not self._lost:
            place = line[0]
            index = place.position - place.first
            if index >= len(place.bodies):  # the others wait for their turn, too
                if not place.is_fetching:
                    self._fetch_ahead()
                break
            line.rotate(-1)
            self._hand_out(waiting.popleft(), place, place.bodies[index])
        if not waiting:
            self._look_now_and_then()
        elif self._lost:
            if not (self._under_way or self._fetching or self._looking):
                self._forget()
                self._look()
        elif not (line or self._fetching or self._looking):
            while waiting and waiting[0].number <= self._looked_for:
                waiting.popleft().done(self._trouble)
            if waiting:
                self._look()
        else:
            self._look_now_and_then()

    def _look_now_and_then(self) -> None:
        if self._line and not (self._looking or self._lost) and self._loop.time() >= self._look_at:
            topic = self._topic
            if topic is not None and self._means.version(topic.topic_id) != self._version:
                self._look()

    # Handing out

    def _hand_out(self, request: PullRequest, place: Place, body: bytes) -> None:
        place.position += 1
        self._reached[place.partition_id] = place.position
        self._under_way += 1
        done = partial(self._moved, request, body)
        subscription = self.consumer.subscription_id
        self._means.advance(
            MoveCall(done, self._caller, subscription, place.partition_id, place.position, request.key)
        )

    def _moved(self, request: PullRequest, body: bytes, result: Any) -> None:
        self._under_way -= 1
        if result == MOVED:
            request.done(body)
        elif result == ELSEWHERE:
            self._lost = True
            if request.key is None:
                self._waiting.appendleft(request)
            else:
                self._recall(request)
        else:
            self._lost = True
            request.done(result if isinstance(result, Exception) else self._gone())
        if self._lost:
            self._serve()

    def _gone(self) -> NoSuchConsumer:
        self._means.forget(self.consumer.consumer_id)
        return NoSuchConsumer(f"there is no consumer {self.consumer.consumer_id} any more")

    def _fail(self, error: Exception) -> None:
        self._lost = True
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            request.done(error)

    # Looking for unread entries

    def _look(self) -> None:
        self._looking = True
        if not self._under_way:
            self._reached.clear()  # from here on the store knows better
        if self._topic is not None:
            self._version = self._means.version(self._topic.topic_id)
        done = partial(self._looked, self._numbers)
        self._means.looking.submit(UnreadCall(done, self.consumer.subscription_id))

    def _looked(self, number: int, result: Any) -> None:
        self._looking = False
        if not isinstance(result, Unread):
            self._fail(result if isinstance(result, Exception) else self._gone())
            return
        self._looked_for = number
        self._trouble = None
        self._look_at = self._loop.time() + LOOK_SECONDS + LOOK_SECONDS_EACH * len(result.partitions)
        found = zip(result.partitions, result.partition_ids, result.positions, strict=True)
        for partition, partition_id, position in found:
            if partition_id not in self._places:
                begin = max(position, self._reached.get(partition_id, 0))
                place = self._places[partition_id] = Place(partition, partition_id, begin)
                self._line.append(place)
        self._serve()

    def _fetch_ahead(self) -> None:
        """Fetch for the partition that is next in line, and for those soon after it."""
        for place in islice(self._line, min(len(self._waiting), FETCHES)):
            if place.is_dry and not place.is_fetching:
                place.is_fetching = True
                self._fetching += 1
                self._means.start(self._fetch(place))

    async def _fetch(self, place: Place) -> None:
        limit = max(LEAST_AHEAD, AHEAD // len(self._places))
        entries = None
        try:
            if self._topic is None:
                self._topic = await self._means.find_topic(self.consumer.topic)
            entries = await self._means.fetch(
                self._topic, place.partition, place.position, limit, caller=self._caller
            )
        except NoSuchTopic:
            self._fail(self._gone())
        except Exception as error:  # serve readable partitions first
            self._trouble = error
        self._fetching -= 1
        place.is_fetching = False
        if entries is None:
            self._weigh(place, [])
            self._line.remove(place)
            del self._places[place.partition_id]
        else:
            place.position = max(place.position, entries.first_offset)
            place.first = entries.first_offset
            self._weigh(place, entries.bodies)
        self._serve()

    def _weigh(self, place: Place, bodies: list[bytes]) -> None:
        place.bodies = bodies
        size = sum(map(len, bodies)) + PER_ENTRY * len(bodies)
        more, place.size = size - place.size, size
        self.bytes += more
        self._means.account(more)

    def _forget(self) -> None:
        self._lost = False
        self._line.clear()
        self._places.clear()
        self._reached.clear()
        self._topic = None
        self._means.account(-self.bytes)
        self.bytes = 0

    # Requests with a key

    def _done_with_key(self, key: str, result: Any) -> None:
        for done in self._keyed.pop(key):
            done(result)

    def _recall(self, request: PullRequest) -> None:
        assert request.key is not None
        done = partial(self._recalled, request)
        self._means.recalling.submit(RecallCall(done, self.consumer.subscription_id, request.key))

    def _recalled(self, request: PullRequest, known: Any) -> None:
        if isinstance(known, Exception):
            request.done(known)
        elif known is None:
            self._enter(request)
        elif known[1] < 0:
            request.done(None)  # retention has removed it
        else:
            self._means.start(self._give_again(request, *known))

    async def _give_again(self, request: PullRequest, partition: int, offset: int) -> None:
        """Deliver again the message that an earlier request with this key got."""
        try:
            topic = await self._means.find_topic(self.consumer.topic)
            entries = await self._means.fetch(topic, partition, offset, 1, caller=self._caller)
        except Exception as error:
            request.done(error)
            return
        if entries is None or entries.first_offset != offset:
            # Its broker is away; or it is being removed, then the next request gets "nothing".
            request.done(StoreUnavailable("the message of this Idempotency-Key cannot be read now"))
        else:
            request.done(entries.bodies[0])
