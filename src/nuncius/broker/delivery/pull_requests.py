"""Requests for one message. Requests with the same key get the same one, so that a client may repeat them."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from nuncius.broker.background.actors import NumberedConsumer
from nuncius.broker.caller import Caller
from nuncius.broker.delivery.tails import Tails
from nuncius.broker.topics.topic import Topic
from nuncius.store.calls.moving import MoveCall
from nuncius.store.calls.unread import ConsumerCall
from nuncius.store.combiner.combiner import Combiner
from nuncius.store.errors import StoreUnavailable

Done = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class PullServices:
    """Services that the consumers of a node share."""

    tails: Tails
    advance: Callable[[MoveCall], None]
    looking: Combiner[ConsumerCall]
    recalling: Combiner[ConsumerCall]
    find_topic: Callable[[str], Awaitable[Topic]]
    start: Callable[[Coroutine[None, None, None]], object]
    forget: Callable[[int], None]


@dataclass(slots=True, eq=False)
class PullRequest:
    done: Done
    key: str | None
    number: int = 0


class RepeatableRequests:
    """The requests of a consumer that have a key."""

    def __init__(
        self,
        consumer: NumberedConsumer,
        services: PullServices,
        enter: Callable[[PullRequest], None],
        caller: Caller,
    ) -> None:
        self._consumer = consumer
        self._services = services
        self._caller = caller
        self._enter = enter  # for requests with a new key
        self._waiting: dict[str, list[Done]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def ask(self, done: Done, key: str) -> None:
        if key in self._waiting:
            self._waiting[key].append(done)  # the first of them asks for all
        else:
            self._waiting[key] = [done]
            self.recall(PullRequest(partial(self._done, key), key))

    def _done(self, key: str, result: Any) -> None:
        for done in self._waiting.pop(key):
            done(result)

    def recall(self, request: PullRequest) -> None:
        """Deliver again what an earlier request with this key got, or else enter the request."""
        assert request.key is not None
        done = partial(self._recalled, request)
        self._services.recalling.submit(ConsumerCall(done, self._consumer.subscription_id, request.key))

    def _recalled(self, request: PullRequest, known: Any) -> None:
        if isinstance(known, Exception):
            request.done(known)
        elif known is None:
            self._enter(request)
        elif known[1] < 0:
            request.done(None)  # retention has removed it
        else:
            self._services.start(self._give_again(request, *known))

    async def _give_again(self, request: PullRequest, partition: int, offset: int) -> None:
        """Deliver again the message that an earlier request with this key got."""
        try:
            topic = await self._services.find_topic(self._consumer.topic)
            found = await self._services.tails.fetch_one(topic.partition_id(partition), offset, self._caller)
        except Exception as error:
            request.done(error)
            return
        if found is None:
            # Its broker is away; or it is being removed, then the next request gets "nothing".
            request.done(StoreUnavailable("the message of this Idempotency-Key cannot be read now"))
        else:
            request.done(found[0].entries.bodies[found[1]])
