"""Serve a connection of the slim dialect: topics only, and few answers.

An ERROR leaves the connection open. As in STOMP itself, frames are carried out in their order.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from nuncius.broker import Broker
from nuncius.broker.model import Feed, PushedSlice
from nuncius.doors.stomp import slim_codec
from nuncius.doors.stomp.answers import Answer, Answers
from nuncius.doors.stomp.background import Background
from nuncius.doors.stomp.carrier import Carrier
from nuncius.doors.stomp.destinations import parse_literal
from nuncius.doors.stomp.errors import Refused, explain
from nuncius.doors.stomp.frames.rendering import slim_bodies
from nuncius.doors.stomp.line import Line
from nuncius.doors.stomp.session import REQUEST_COST
from nuncius.doors.stomp.slim_codec import END_OF_BODY, SlimFrame, Splitter, TooLarge
from nuncius.doors.stomp.subscriptions.audience import Audience

MAX_HEAD = 4096
MAX_SUBSCRIPTIONS = 1000  # of a connection

EXPECTED_CONNECT = slim_codec.error("Expected CONNECT")
FAILED_TO_ADD = slim_codec.error("Failed to add message")
FAILED_TO_SUBSCRIBE = slim_codec.error("Failed to subscribe")
CONNECTED_ALREADY = slim_codec.error("Already connected")
TOO_LARGE = slim_codec.error("Frame too large")


class SlimSession:
    def __init__(
        self,
        broker: Broker,
        carrier: Carrier,
        session: str,
        background: Background,
        audience: Audience,
        hand_over: Callable[[bytes], None],
    ) -> None:
        """`hand_over` receives the bytes of a client that turns out to use STOMP itself."""
        self._broker = broker
        self._carrier = carrier
        self._session = session
        self._background = background
        self._audience = audience
        self._hand_over = hand_over
        self._is_settled = False  # the dialect is certain
        self._splitter = Splitter(MAX_HEAD + broker.limits.max_body)
        self._answers = Answers(carrier)
        self._line = Line(self._answers, background)
        self._is_over = False
        self._feeds: dict[str, Feed] = {}

    # From the carrier

    def received(self, data: bytes) -> None:
        if self._is_over:
            return
        cost = REQUEST_COST + len(data)
        try:
            for piece in self._splitter.receive(data):
                if not self._is_settled and slim_codec.is_real(piece):
                    self._hand_over(piece + b"\0" + self._splitter.rest())
                    return
                self._is_settled = True
                if not self._take(slim_codec.parse(piece), cost):
                    return
                cost = REQUEST_COST
        except TooLarge:
            self._hang_up(cost, TOO_LARGE)
        self._carrier.footprint.begin(self._splitter.incomplete)

    def lost(self) -> None:
        """Carry out the frames that have arrived, then end the subscriptions."""
        self._is_over = True
        self._splitter.rest()
        self._line.at_the_end(self._leave)

    async def finish(self) -> None:
        self._is_over = True
        await self._carrier.all_answered()
        self._leave()
        self._carrier.close()

    def break_off(self, reason: str) -> None:
        if not self._is_over:
            self._hang_up(0, slim_codec.error(reason))

    def _hang_up(self, cost: int, last_words: bytes) -> None:
        self._is_over = True
        self._answers.end(self._answers.owe(b"", cost), last_words)

    def _leave(self) -> None:
        while self._feeds:
            topic, feed = self._feeds.popitem()
            self._audience.go(topic)
            self._background.start(feed.close())

    # Frames, one after the other

    def _take(self, frame: SlimFrame, cost: int) -> bool:
        """Handle a frame in its turn. Return whether more frames may follow."""
        answer = self._answers.owe(b"", cost)
        self._line.enter(partial(self._handle, frame, answer), answer)
        return not self._is_over

    def _handle(self, frame: SlimFrame, answer: Answer) -> None:
        if frame.command == "SEND":
            self._send(frame, answer)
        elif frame.command == "SUBSCRIBE":
            self._line.wait_for(self._subscribe(frame, answer), _check)
        elif frame.command == "DISCONNECT":
            self._is_over = True
            self._leave()
            self._answers.end(answer, slim_codec.RECEIPT)
            self._line.drop()
        else:
            self._answers.give(answer, CONNECTED_ALREADY if frame.command else EXPECTED_CONNECT)

    # SEND

    def _send(self, frame: SlimFrame, answer: Answer) -> None:
        try:
            topic = _topic(frame.headers.get("topic"))
        except Exception:
            self._answers.give(answer, FAILED_TO_ADD)
            return
        if self._audience.is_known(topic):
            self._publish(topic, frame.body, answer)
        else:
            self._line.wait_for(self._publish_if_heard(topic, frame.body, answer), _check)

    async def _publish_if_heard(self, topic: str, body: bytes, answer: Answer) -> None:
        try:
            is_heard = await self._audience.is_there(topic)
        except Exception as error:
            explain(error)
            is_heard = False
        if is_heard:
            self._publish(topic, body, answer)
        else:
            self._answers.give(answer, FAILED_TO_ADD)

    def _publish(self, topic: str, body: bytes, answer: Answer) -> None:
        try:
            self._broker.topics.publish_soon(topic, [body], partial(self._published, answer), caller=self)
        except Exception as error:
            self._published(answer, error)

    def _published(self, answer: Answer, result: Any) -> None:
        self._answers.give(answer, FAILED_TO_ADD if isinstance(result, Exception) else None)

    # SUBSCRIBE

    async def _subscribe(self, frame: SlimFrame, answer: Answer) -> None:
        """Subscribe to a topic. A second SUBSCRIBE to it changes nothing."""
        try:
            destination = frame.headers.get("destination")
            topic = _topic(destination)
            if topic not in self._feeds:
                await self._open(topic, slim_codec.message_head(destination or ""))
        except Exception as error:
            explain(error)
            self._answers.give(answer, FAILED_TO_SUBSCRIBE)
        else:
            self._answers.give(answer)

    async def _open(self, topic: str, head: bytes) -> None:
        if len(self._feeds) >= MAX_SUBSCRIPTIONS:
            raise Refused(f"a connection has at most {MAX_SUBSCRIPTIONS} subscriptions")
        self._feeds[topic] = await self._broker.feeds.open(
            topic,
            f"stomp/{self._session}/{topic}"[:255].rstrip(),
            partial(self._push, head),
            gate=self._carrier.replies,
            caller=self,
            ended=partial(self._ended, topic),
        )
        self._audience.come(topic)

    def _push(self, head: bytes, batch: PushedSlice) -> None:
        bodies = slim_bodies(batch.chunk)[batch.start : batch.end]
        self._carrier.send(head + (END_OF_BODY + head).join(bodies) + END_OF_BODY)

    def _ended(self, topic: str, error: Exception) -> None:
        feed = self._feeds.pop(topic, None)
        if feed is not None:
            self._audience.go(topic)
            self._background.start(feed.close())
            self._carrier.send(slim_codec.error(explain(error)))


def _topic(text: str | None) -> str:
    if text is None:
        raise Refused("a topic has a name")
    destination = parse_literal(text)
    if destination.is_queue:
        raise Refused("there are only topics here")
    return destination.name


def _check(error: Exception | None) -> None:
    """Assert that the work handled its own errors."""
    assert error is None
