"""Route entries that another node stores.

A broker stores entries of the common store itself. Any other node sends them to the broker of the partition
or, if that does not answer, to another one: all of them reach the common store. Entries of a broker's own
store go only to that broker. While it is away, entries without a fixed partition go to another one, which is
created if there is none; entries with a fixed partition are refused; readers find nothing new.
"""

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from nuncius.broker import Broker
from nuncius.broker.background.tasks import BackgroundWork
from nuncius.broker.caller import NODE
from nuncius.broker.errors import (
    BrokerError,
    CallFailed,
    NoSuchTopic,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from nuncius.broker.model import Topic
from nuncius.broker.names import Names
from nuncius.cluster.claims import PublishClaims
from nuncius.cluster.forwarding import NO_BROKER, Forwarding
from nuncius.cluster.link.codec import Moved, Send
from nuncius.cluster.link.link import Forward
from nuncius.cluster.link.server import LINK
from nuncius.cluster.own_store import OwnStore
from nuncius.cluster.placement import Placement, Route
from nuncius.cluster.scattering import CallPiece, Parts, call_of, parts_of, send_of
from nuncius.store.calls.fetching import FetchCall
from nuncius.store.calls.publishing import PublishCall

log = logging.getLogger(__name__)

MAX_MOVES = 5


class Away(StoreUnavailable):
    """The broker that has a partition's store does not answer."""


class PublishRouter:
    """The `elsewhere` of a broker's topics."""

    def __init__(
        self, broker: Broker, placement: Placement, *, is_broker: bool, own: OwnStore | None = None
    ) -> None:
        self._broker = broker
        self._placement = placement
        self._is_broker = is_broker
        self._own = own
        self._routes: Names[Route] = Names(self._load)
        self._claims = PublishClaims(broker.store)
        self._elsewhere: dict[int, int] = {}  # partition id: store id
        self.is_outdated = False
        """True after a read found a partition in another store than expected."""
        self._catalogue = broker.catalogue
        self._counted: Counter[int] = Counter()  # calls in progress, by publisher
        self._turns: dict[int, tuple[int, int]] = {}  # by topic: the turn, and the frame count then
        # Topics that are getting another partition, and the calls that wait for it, in order.
        self._growing: dict[str, list[Callable[[], None]]] = {}
        self._background = BackgroundWork()
        self.forwarding = Forwarding()

    async def learn_elsewhere(self) -> None:
        self.is_outdated = False
        self._elsewhere = await self._placement.elsewhere()

    async def _load(self, name: str) -> Route:
        for _ in range(MAX_MOVES):
            topic = await self._broker.topics.names.find(name)
            route = await self._placement.route(topic.topic_id, self.forwarding.lost)
            if route.stores:
                if not route.is_common:
                    await self.learn_elsewhere()
                return route
            self._broker.topics.names.forget(name)  # it was deleted
        raise NoSuchTopic(f"topic {name!r} comes and goes")

    # The interface `Elsewhere` of topics

    def publish(self, call: PublishCall, topic: Topic) -> bool:
        if self._is_broker and topic.stores is None:
            return False
        if call.caller.door == LINK:
            return self._refuse(call, topic)
        if self._catalogue != self._broker.catalogue:
            self._catalogue = self._broker.catalogue
            self._routes.forget_all()
        if call.publisher_id is not None:
            self._counted[call.publisher_id] += 1
            if self.forwarding.is_looking:  # the call must not overtake the publisher's last one
                self.forwarding.when_looked(partial(self._go, call, 0))
                return True
        self._go(call, 0)
        return True

    def fetch(self, call: FetchCall) -> bool:
        store = self._elsewhere.get(call.partition_id) if self._elsewhere else None
        if store is None:
            return False
        if self._own is not None and self._own.store_id == store:
            self._own.fetch(call)
            return True
        if link := self.forwarding.of_store(store):
            link.look(call)
        else:
            call.done(None)  # readers continue with other partitions
        return True

    def find(self, call: FetchCall) -> None:
        """Look for a partition that was assigned to a broker with a store of its own a moment ago."""
        self.is_outdated = True
        self.forwarding.when_looked(partial(self._found, call))

    def _found(self, call: FetchCall) -> None:
        if not self.fetch(call):
            call.done(None)  # the store did not say where

    def _refuse(self, call: PublishCall, topic: Topic) -> bool:
        """Refuse entries from another node if the topic has moved, so that it looks again. Return False if
        they belong to the common store: they are stored."""
        partitions = [call.partitions] if type(call.partitions) is int else call.partitions
        stores = topic.stores or ()
        if self._is_broker and all(
            stores[each - 1] == 1
            for each in partitions  # type: ignore[union-attr]
            if each <= len(stores)
        ):
            return False
        call.done(Moved(f"topic {topic.name!r} has moved; nothing was stored"))
        return True

    # Publishing

    def _go(self, call: PublishCall, moves: int) -> None:
        if call.topic_name in self._growing:
            self._growing[call.topic_name].append(partial(self._go, call, moves))
        else:
            self._routes.when_known(call.topic_name, partial(self._routed, call, moves))

    def _routed(self, call: PublishCall, moves: int, route: Route | Exception) -> None:
        if isinstance(route, Exception):
            self._finish(call, route)
            return
        if call.topic_id != route.topic_id or call.layout not in (None, len(route.stores)):
            self._broker.topics.place(call, Topic(route.topic_id, call.topic_name, route.partition_ids))
        if route.is_common:
            self._send_to_common(call, route, moves)
        elif self._is_stuck(call, route):
            self._make_room(call, route, moves)
        elif call.publisher_id is None:
            self._send_to_stores(call, route, moves)
        else:
            self._prefer_writable(call, route)
            self._claims.claim(call, partial(self._claimed, call, route, moves))

    def _prefer_writable(self, call: PublishCall, route: Route) -> None:
        """Choose another partition for entries without a fixed one if the broker of theirs is away."""
        partition = call.partitions
        if _is_movable(call) and type(partition) is int:
            known = partition <= len(route.stores)
            if not known or not self._is_writable(route.stores[partition - 1]):
                call.partitions = self._next_partition(route) or partition

    def _claimed(self, call: PublishCall, route: Route, moves: int, partitions: Any) -> None:
        if isinstance(partitions, Exception):
            self._finish(call, partitions)
            return
        call.partitions = partitions
        self._send_to_stores(call, route, moves)

    def _finish(self, call: PublishCall, result: Any) -> None:
        if call.publisher_id is not None:
            self._counted[call.publisher_id] -= 1
            if not self._counted[call.publisher_id]:
                del self._counted[call.publisher_id]
        call.done(result)

    def _answered(self, call: PublishCall, moves: int, result: Any) -> None:
        if isinstance(result, Moved | Away) and self._is_overtaken(call):
            self._finish(call, StoreUnavailable(str(result)))
        elif isinstance(result, Away):
            self._look_again(call, moves, StoreUnavailable(str(result)))
        elif isinstance(result, Moved) and moves < MAX_MOVES:
            self._routes.forget(call.topic_name)
            self._broker.topics.names.forget(call.topic_name)
            self._go(call, moves + 1)
        elif isinstance(result, Moved):
            self._finish(call, CallFailed(str(result)))
        else:
            self._finish(call, result)

    def _is_overtaken(self, call: PublishCall) -> bool:
        """Return True if other calls of the publisher are in progress. One with a higher count may be stored
        by now; a retry of this call would then be taken for a duplicate, although it was never stored. So its
        publisher gets an error."""
        return call.publisher_id is not None and self._counted[call.publisher_id] > 1

    def _look_again(self, call: PublishCall, moves: int, error: Exception) -> None:
        """Retry once after a broker did not answer: it may have come back a moment ago."""
        if moves:
            self._finish(call, error)
        else:
            self.forwarding.when_looked(partial(self._go, call, 1))

    def _send_to_common(self, call: PublishCall, route: Route, moves: int) -> None:
        """Send the whole call to one broker. If the partition is free, the broker chooses it by its own
        knowledge."""
        done = partial(self._answered, call, moves)
        if self._is_broker:  # the topic was in several stores when the call was made
            self._store_here(call, send_of(call, 1, call.chosen or 0), done)
            return
        free = _is_free(call)
        partition = call.partitions if type(call.partitions) is int else call.partitions[0]  # type: ignore[index]
        if free:
            partition = self._next_partition(route) or 1  # if there is none, the call waits
        broker = route.brokers[partition - 1] if partition <= len(route.brokers) else None
        send = send_of(call, 1, partition if free else call.chosen or 0)
        self.forwarding.send_to_common(send, broker, done, call.caller)

    # Topics in several stores

    def _is_stuck(self, call: PublishCall, route: Route) -> bool:
        """Return True if any partition would do, and all are in stores of brokers that are away."""
        return _is_movable(call) and not any(map(self._is_writable, route.stores))

    def _make_room(self, call: PublishCall, route: Route, moves: int) -> None:
        """Add a partition to the topic, at a broker that is alive."""
        name = call.topic_name
        if name in self._growing:
            self._growing[name].append(partial(self._go, call, 2))
        elif moves != 1 or not (self._is_broker or self.forwarding.has_any):
            self._look_again(call, moves, StoreUnavailable(NO_BROKER))
        else:
            self._growing[name] = [partial(self._go, call, 2)]
            self._background.start(self._grow(name, len(route.stores) + 1))

    async def _grow(self, name: str, partitions: int) -> None:
        try:
            await self._broker.topics.grow(name, partitions, caller=NODE)
        except (BrokerError, StoreError) as error:
            log.warning("a topic did not grow", extra={"topic": name, "error": str(error)})
        self._routes.forget(name)
        for go in self._growing.pop(name):
            go()

    def _send_to_stores(self, call: PublishCall, route: Route, moves: int) -> None:
        if _is_free(call):
            partition = self._next_partition(route)
            if partition is None:
                self._look_again(call, moves, StoreUnavailable(NO_BROKER))
                return
            call.partitions = partition
        done = partial(self._answered, call, moves)
        pieces = parts_of(call)
        if len(pieces) > 1:
            parts = Parts(pieces, done)
            for piece in pieces:
                self._send_piece(call, route, piece, parts.part(piece))
        else:
            self._send_piece(call, route, pieces[0], done)

    def _send_piece(
        self, call: PublishCall, route: Route, piece: CallPiece, done: Callable[[Any], None]
    ) -> None:
        if not 1 <= piece.partition <= len(route.stores):
            done(Moved(f"topic {call.topic_name!r} has no partition {piece.partition}"))
            return
        store = route.stores[piece.partition - 1]
        send = send_of(call, store, piece.partition, piece.numbers)
        if store == 1 and self._is_broker:
            self._store_here(call, send, done)
        elif store == 1:
            self.forwarding.send_to_common(send, route.brokers[piece.partition - 1], done, call.caller)
        elif self._own is not None and self._own.store_id == store:
            self._own.publish(send, done, call.caller)
        else:
            self._forward_away(call, send, done)

    def _forward_away(self, call: PublishCall, send: Send, done: Callable[[Any], None]) -> None:
        if link := self.forwarding.of_store(send.store_id):
            link.forward(Forward(send, done, partial(self._lost_away, call, done)))
        else:
            done(Away(_away(call, send)))

    def _lost_away(self, call: PublishCall, done: Callable[[Any], None], forward: Forward) -> None:
        """Answer a call after the broker of its store was lost: no other broker has its partitions."""
        if forward.was_sent:
            done(
                OutcomeUnknown(
                    f"the broker of partition {forward.send.partition} of topic {call.topic_name!r} was lost;"
                    " the entries may be stored"
                )
            )
        elif _is_free(call):
            done(Moved(NO_BROKER))  # retry at another broker
        else:
            done(Away(_away(call, forward.send)))

    # In this process

    def _store_here(self, call: PublishCall, send: Send, done: Callable[[Any], None]) -> None:
        piece = call_of(send, done, call.caller, call.publisher_id, 0)
        if not send.partition:
            piece.partitions, piece.layout = call.partitions, call.layout
        self._broker.topics.store_here(piece)

    # Choices

    def _next_partition(self, route: Route) -> int | None:
        """Choose writable partitions in turn. Entries of one frame go to the same partition: a frame for a
        hundred partitions costs as much as many frames."""
        partitions = len(route.stores)
        first, flushes = self._turns.get(route.topic_id, (0, -1))
        if self._is_broker or flushes != self.forwarding.flushes:
            first += 1
        for turn in range(first, first + partitions):
            if self._is_writable(route.stores[turn % partitions]):
                self._turns[route.topic_id] = (turn, self.forwarding.flushes)
                return 1 + turn % partitions
        return None

    def _is_writable(self, store: int) -> bool:
        if store == 1:
            return self._is_broker or self.forwarding.has_any
        return (self._own and self._own.store_id) == store or self.forwarding.may_be_given_more(store)


def _is_movable(call: PublishCall) -> bool:
    """Return True if neither the caller nor a key has chosen a partition."""
    return call.chosen is None and call.keys is None


def _is_free(call: PublishCall) -> bool:
    """Return True if a call may go to any partition, now and when it is repeated."""
    return _is_movable(call) and call.publisher_id is None


def _away(call: PublishCall, send: Send) -> str:
    return (
        f"partition {send.partition} of topic {call.topic_name!r} is in the store of a broker that does not"
        " answer; nothing was stored"
    )
