"""Handle SUBSCRIBE and UNSUBSCRIBE, and find the subscription of an ACK."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from nuncius.broker import Broker
from nuncius.broker.background.tasks import BackgroundWork
from nuncius.doors.stomp.destinations import Destination, parse
from nuncius.doors.stomp.errors import StompRefusal
from nuncius.doors.stomp.frames.codec import Frame
from nuncius.doors.stomp.frames.headers import required
from nuncius.doors.stomp.frames.rendering import message_head
from nuncius.doors.stomp.frames.versions import Version
from nuncius.doors.stomp.introduction import Introduction
from nuncius.doors.stomp.subscriptions.consumer import StompConsumer
from nuncius.doors.stomp.subscriptions.queue_subscription import QueueSubscription
from nuncius.doors.stomp.subscriptions.topic_subscription import TopicSubscription
from nuncius.doors.wire import Wire

MAX_SUBSCRIPTIONS = 1000  # of a connection
MAX_PREFETCH = 10_000
QUEUE_PREFETCH = 100
TOPIC_PREFETCH = 1000
AUTO, CLIENT, INDIVIDUAL = "auto", "client", "client-individual"
GOODBYE = None  # close reason of a consumer that unsubscribed or disconnected: no failure

AnySubscription = TopicSubscription | QueueSubscription


@dataclass(frozen=True, slots=True)
class SubscribeFrame:
    """The contents of a SUBSCRIBE frame."""

    key: str  # the subscription's id within the connection
    name: str | None  # value of `subscription` in its MESSAGE frames
    text: str  # the destination as the client wrote it
    destination: Destination
    ack: str
    prefetch: int
    durable: str | None
    start: str

    @property
    def hears_its_own(self) -> bool:
        """Return whether messages that the connection sends to itself must be delivered before it ends, or
        never are."""
        return self.ack == AUTO and self.durable is None

    def is_same_place(self, other: "SubscribeFrame") -> bool:
        return (self.durable, self.destination) == (other.durable, other.destination)


@dataclass(frozen=True, slots=True)
class _Entry:
    wish: SubscribeFrame
    subscription: AnySubscription


class Subscribing:
    def __init__(
        self,
        broker: Broker,
        carrier: Wire,
        introduction: Introduction,
        background: BackgroundWork,
        ended: Callable[[Exception], None],
    ) -> None:
        self._version = introduction.version
        self._introduction = introduction
        self._entries: dict[str, _Entry] = {}
        self._by_number: dict[str, AnySubscription] = {}
        self._numbers = 0
        self._heard: set[Destination] = set()  # of non-durable subscriptions without ACK
        self._sent_to: set[Destination] = set()  # those of `_heard` that the connection has sent to
        self._is_over = False
        self._pattern = StompConsumer(broker, carrier, background, ended, self._version, 0, b"", False, False)

    async def subscribe(self, frame: Frame) -> None:
        wish = self._wish(frame)
        if wish.key in self._entries:
            raise StompRefusal(f"there is a subscription {wish.key[:100]!r} already")
        if wish.durable is not None and any(each.wish.is_same_place(wish) for each in self._entries.values()):
            raise StompRefusal(f"this connection has the durable subscription {wish.durable[:100]!r} already")
        if len(self._entries) >= MAX_SUBSCRIPTIONS:
            raise StompRefusal(f"a connection has at most {MAX_SUBSCRIPTIONS} subscriptions")
        self._numbers += 1
        number = self._numbers
        consumer = replace(
            self._pattern,
            number=number,
            head=message_head(wish.name, wish.text, self._version),
            is_acknowledged=wish.ack != AUTO,
            is_cumulative=wish.ack == CLIENT,
        )
        subscription = await self._open(wish, consumer)
        self._entries[wish.key] = _Entry(wish, subscription)
        self._by_number[str(number)] = subscription
        if wish.hears_its_own:
            self._heard.add(wish.destination)
        if self._is_over:
            await subscription.close(GOODBYE)

    async def _open(self, wish: SubscribeFrame, consumer: StompConsumer) -> AnySubscription:
        if wish.destination.is_queue:
            queue = await consumer.broker.queues.ensure(wish.destination.name, caller=consumer.carrier.caller)
            from_queue = QueueSubscription(consumer, queue, wish.prefetch)
            from_queue.start()
            return from_queue
        from_topic = TopicSubscription(consumer)
        await from_topic.start(
            wish.destination.name,
            f"stomp/{self._introduction.session}/{consumer.number}" if wish.durable is None else wish.durable,
            start=wish.start,
            durable=wish.durable is not None,
            prefetch=wish.prefetch,
        )
        return from_topic

    async def unsubscribe(self, frame: Frame) -> None:
        """End the delivery. A durable subscription keeps its position, unless the frame names it, too."""
        key = self._key(frame)
        entry = self._entries.pop(key, None)
        if entry is None:
            raise StompRefusal(f"there is no subscription {key[:100]!r}")
        for number, subscription in list(self._by_number.items()):
            if subscription is entry.subscription:
                del self._by_number[number]
        await entry.subscription.close(GOODBYE)
        durable = None if entry.wish.destination.is_queue else self._durable(frame)
        if durable is not None:
            if durable != entry.wish.durable:
                raise StompRefusal(f"the durable subscription of {key[:100]!r} is not {durable[:100]!r}")
            await self._pattern.broker.subscriptions.unsubscribe(entry.wish.destination.name, durable)

    def acknowledged_by(self, frame: Frame) -> tuple[AnySubscription, str]:
        """Return the subscription that an ACK or NACK is for, and its id of the message."""
        headers = frame.headers
        if self._version is Version.V12:
            ack_id = required(frame, "id")
            found = self._by_number.get(ack_id.partition("-")[0])
        else:
            ack_id = required(frame, "message-id")
            if self._version is Version.V11 or "subscription" in headers:
                entry = self._entries.get(required(frame, "subscription"))
                found = None if entry is None else entry.subscription
            else:
                waiting = (e.subscription for e in self._entries.values() if ack_id in e.subscription)
                found = next(waiting, None)
        if found is None:
            raise StompRefusal(f"no message {ack_id[:100]!r} waits for an acknowledgement")
        return found, ack_id

    def note_sent(self, to: Destination) -> None:
        """Note that the connection sends to this destination."""
        if to in self._heard:
            self._sent_to.add(to)

    async def deliver_own(self) -> None:
        """Deliver the messages that the connection has sent to itself."""
        own = [
            entry.subscription.catch_up()
            for entry in self._entries.values()
            if entry.wish.hears_its_own and entry.wish.destination in self._sent_to
        ]
        await asyncio.gather(*own, return_exceptions=True)  # messages that fail here are not delivered

    def stop(self, reason: str | None) -> None:
        """End all deliveries. Unacknowledged messages count as failed attempts if there is a reason."""
        if not self._is_over:
            self._is_over = True
            for entry in self._entries.values():
                entry.subscription.stop(reason)

    async def close(self) -> None:
        """End all deliveries of a client that disconnects. Wait until its messages are back in their
        queues."""
        self._is_over = True
        for entry in self._entries.values():
            await entry.subscription.close(GOODBYE)

    def _key(self, frame: Frame) -> str:
        """Return the id of a subscription; in 1.0 its destination if it has none."""
        if self._version is Version.V10 and "id" not in frame.headers:
            return required(frame, "destination")
        return required(frame, "id")

    def _durable(self, frame: Frame) -> str | None:
        """Return the durable name of a subscription. Clients of other servers name it otherwise: those of
        RabbitMQ send `durable:true` and mean the id; those of ActiveMQ a name within their client-id."""
        name = frame.headers.get("durable")
        if name is not None:
            return {"true": self._key(frame), "false": None}.get(name, name)
        for other in ("activemq.subscriptionName", "durable-subscription-name"):
            if other in frame.headers:
                return "/".join(filter(None, (self._introduction.client_id, frame.headers[other])))
        return None

    def _wish(self, frame: Frame) -> SubscribeFrame:
        headers = frame.headers
        text = required(frame, "destination")
        destination = parse(text)
        ack = headers.get("ack", AUTO)
        if ack not in (AUTO, CLIENT, INDIVIDUAL):
            raise StompRefusal(f"ack is {AUTO}, {CLIENT} or {INDIVIDUAL}, not {ack[:100]!r}")
        start = headers.get("start", "latest")
        if start not in ("latest", "earliest"):
            raise StompRefusal(f"start is latest or earliest, not {start[:100]!r}")
        if "selector" in headers:
            raise StompRefusal("there are no selectors here: a subscriber gets every message")
        if destination.is_queue and headers.get("durable", "true") not in ("true", "false"):
            raise StompRefusal("a queue keeps its messages; durable is for topics")
        return SubscribeFrame(
            self._key(frame),
            headers.get("id"),
            text,
            destination,
            ack,
            _prefetch(frame, destination),
            None if destination.is_queue else self._durable(frame),
            start,
        )


def _prefetch(frame: Frame, destination: Destination) -> int:
    text = frame.headers.get("prefetch-count", frame.headers.get("activemq.prefetchSize"))
    if text is None:
        return QUEUE_PREFETCH if destination.is_queue else TOPIC_PREFETCH
    if not (text.isascii() and text.isdecimal()) or len(text) > 9 or not 1 <= int(text) <= MAX_PREFETCH:
        raise StompRefusal(f"prefetch-count is a number from 1 to {MAX_PREFETCH}, not {text[:100]!r}")
    return int(text)
