"""Serve a connection of the slim dialect: topics only, and few answers.

An ERROR leaves the connection open. As in STOMP itself, frames are carried out in their order.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from nuncius.broker import Broker
from nuncius.broker.background.tasks import BackgroundWork
from nuncius.broker.model import Feed, PushedSlice
from nuncius.doors.replies import Reply
from nuncius.doors.stomp import slim_codec
from nuncius.doors.stomp.destinations import parse_literal
from nuncius.doors.stomp.errors import StompRefusal, explain
from nuncius.doors.stomp.frames.rendering import slim_bodies
from nuncius.doors.stomp.line import FRAME, FrameLine
from nuncius.doors.stomp.session import REQUEST_COST
from nuncius.doors.stomp.slim_codec import END_OF_BODY, EndlessFrame, SlimFrame, Splitter
from nuncius.doors.stomp.subscriptions.audience import Audience
from nuncius.doors.wire import Wire

MAX_HEAD = 4096
MAX_SUBSCRIPTIONS = 1000  # of a connection

EXPECTED_CONNECT = slim_codec.error("Expected CONNECT")
FAILED_TO_ADD = slim_codec.error("Failed to add message")
FAILED_TO_SUBSCRIBE = slim_codec.error("Failed to subscribe")
CONNECTED_ALREADY = slim_codec.error("Already connected")
TOO_LARGE = slim_codec.error("Frame too large")


class SlimSession:
    speaks = "slim"

    def __init__(
        self,
        broker: Broker,
        wire: Wire,
        session: str,
        background: BackgroundWork,
        audience: Audience,
        hand_over: Callable[[bytes], None],
    ) -> None:
        """`hand_over` receives the bytes of a client that turns out to use STOMP itself."""
        self._broker = broker
        self._wire = wire
        self._session = session
        self._background = background
        self._audience = audience
        self._hand_over = hand_over
        self._is_settled = False  # the dialect is certain
        self._splitter = Splitter(MAX_HEAD + broker.limits.max_body)
        self._line = FrameLine(wire, self._begin, background)
        self._feeds: dict[str, Feed] = {}

    # From the wire

    def received(self, data: bytes) -> None:
        if self._line.is_closed:
            return
        broken = False
        arrived: list[SlimFrame | bytes] = []
        try:
            for piece in self._splitter.receive(data):
                if not self._is_settled and slim_codec.is_real(piece):
                    self._hand_over(piece + b"\0" + self._splitter.rest())
                    return
                self._is_settled = True
                arrived.append(slim_codec.parse(piece))
        except EndlessFrame:
            arrived.append(TOO_LARGE)
            broken = True
        cost = self._wire.accept(data, len(arrived), REQUEST_COST, self._splitter.incomplete)
        for frame in arrived:
            self._line.enter(Reply(frame, cost, FRAME))
            cost = REQUEST_COST
        if broken:
            self._line.is_closed = True

    def lost(self) -> None:
        """Carry out the frames that have arrived, then end the subscriptions."""
        self._line.is_closed = True
        self._splitter.rest()
        self._line.at_the_end(self._leave)

    async def finish(self) -> None:
        self._line.is_closed = True
        await self._wire.all_answered()
        self._leave()
        self._wire.close()

    def break_off(self, reason: str) -> None:
        if not self._line.is_closed:
            self._line.enter(Reply(slim_codec.error(reason), 0, FRAME))
            self._line.is_closed = True

    def _leave(self) -> None:
        while self._feeds:
            topic, feed = self._feeds.popitem()
            self._audience.go(topic)
            self._background.start(feed.close())

    # Frames, one after the other

    def _begin(self, reply: Reply) -> bool:
        """Handle a frame, or send these last words."""
        if self._line.is_held_up:
            return False
        frame = reply.request
        if isinstance(frame, bytes):
            self._end(reply, frame)
        elif frame.command == "SEND":
            self._send(frame, reply)
        elif frame.command == "SUBSCRIBE":
            self._line.wait_for(self._subscribe(frame, reply), _check)
        elif frame.command == "DISCONNECT":
            self._leave()
            self._end(reply, slim_codec.RECEIPT)
        else:
            self._line.answer(reply, CONNECTED_ALREADY if frame.command else EXPECTED_CONNECT)
        return True

    def _end(self, reply: Reply, last_words: bytes) -> None:
        self._line.is_closed = reply.is_last = True
        self._line.drop()
        self._line.answer(reply, last_words)

    # SEND

    def _send(self, frame: SlimFrame, reply: Reply) -> None:
        try:
            topic = _topic(frame.headers.get("topic"))
        except Exception:
            self._line.answer(reply, FAILED_TO_ADD)
            return
        if self._audience.is_known(topic):
            self._publish(topic, frame.body, reply)
        else:
            self._line.wait_for(self._publish_if_heard(topic, frame.body, reply), _check)

    async def _publish_if_heard(self, topic: str, body: bytes, reply: Reply) -> None:
        try:
            is_heard = await self._audience.is_there(topic)
        except Exception as error:
            explain(error)
            is_heard = False
        if is_heard:
            self._publish(topic, body, reply)
        else:
            self._line.answer(reply, FAILED_TO_ADD)

    def _publish(self, topic: str, body: bytes, reply: Reply) -> None:
        try:
            self._broker.topics.publish_soon(
                topic, [body], partial(self._published, reply), caller=self._wire.caller
            )
        except Exception as error:
            self._published(reply, error)

    def _published(self, reply: Reply, result: Any) -> None:
        self._line.answer(reply, FAILED_TO_ADD if isinstance(result, Exception) else b"")

    # SUBSCRIBE

    async def _subscribe(self, frame: SlimFrame, reply: Reply) -> None:
        """Subscribe to a topic. A second SUBSCRIBE to it changes nothing."""
        try:
            destination = frame.headers.get("destination")
            topic = _topic(destination)
            if topic not in self._feeds:
                await self._open(topic, slim_codec.message_head(destination or ""))
        except Exception as error:
            explain(error)
            self._line.answer(reply, FAILED_TO_SUBSCRIBE)
        else:
            self._line.answer(reply, b"")

    async def _open(self, topic: str, head: bytes) -> None:
        if len(self._feeds) >= MAX_SUBSCRIPTIONS:
            raise StompRefusal(f"a connection has at most {MAX_SUBSCRIPTIONS} subscriptions")
        self._feeds[topic] = await self._broker.feeds.open(
            topic,
            f"stomp/{self._session}/{topic}"[:255].rstrip(),
            partial(self._push, head),
            gate=self._wire.replies,
            caller=self._wire.caller,
            ended=partial(self._ended, topic),
        )
        self._audience.come(topic)

    def _push(self, head: bytes, batch: PushedSlice) -> None:
        bodies = slim_bodies(batch.chunk)[batch.start : batch.end]
        self._wire.send(head + (END_OF_BODY + head).join(bodies) + END_OF_BODY)

    def _ended(self, topic: str, error: Exception) -> None:
        feed = self._feeds.pop(topic, None)
        if feed is not None:
            self._audience.go(topic)
            self._background.start(feed.close())
            self._wire.send(slim_codec.error(explain(error)))


def _topic(text: str | None) -> str:
    if text is None:
        raise StompRefusal("a topic has a name")
    destination = parse_literal(text)
    if destination.is_queue:
        raise StompRefusal("there are only topics here")
    return destination.name


def _check(error: Exception | None) -> None:
    """Assert that the work handled its own errors."""
    assert error is None
