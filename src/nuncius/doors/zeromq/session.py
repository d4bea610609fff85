"""Serve a connection of a ZeroMQ client: messages become broker calls, results become answers."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any

from nuncius.broker import Broker
from nuncius.broker.errors import InvalidInput, NoSuchSubscription
from nuncius.broker.model import FoundEntry, Turn
from nuncius.doors.replies import RequestLine, UnreadAnswers
from nuncius.doors.wire import Wire
from nuncius.doors.zeromq import pubsub_codec, zmtp_codec
from nuncius.doors.zeromq.lines import Asked
from nuncius.doors.zeromq.pubsub_codec import (
    ACCEPTED,
    ALREADY_SUBSCRIBED,
    ERROR,
    INVALID,
    NOT_SUBSCRIBED,
    GetRequest,
    Malformed,
    PutRequest,
    Request,
    SubscribeRequest,
    UnsubscribeRequest,
)

log = logging.getLogger(__name__)

PUBLISHERS = "zeromq/"  # prefix of publisher names; other protocols have separate counts
REQUEST_COST = 500  # bytes of memory per open request, besides its frames
OTHER_FRAMES = 4096  # bytes of a message besides its body
REST = b"..."  # replaces the dropped part of a message
MAX_GETS = 10_000  # under way per connection
MUCH_UNREAD = 512 << 10  # bytes of answers after which the client must have read them
TOGETHER = (GetRequest, PutRequest)  # requests of one of these kinds run together
AT_ONCE = 8  # lookups of large answers at a time


class ZeromqSession:
    speaks = "zeromq"

    def __init__(self, broker: Broker, wire: Wire) -> None:
        self._broker = broker
        self._wire = wire
        self._decoder = zmtp_codec.ZmtpDecoder(broker.limits.max_body + OTHER_FRAMES)
        self._lines: dict[tuple[bytes, ...], RequestLine[Asked]] = {}
        self._closing = self._lost = self._is_broken = False
        self._gets: set[Asked] = set()
        self._held: dict[RequestLine[Asked], None] = {}  # lines whose next get has to wait
        self._numbers = count()
        self._again: list[tuple[int, Asked]] = []  # gets to repeat; a heap, the oldest is first
        self._early: dict[RequestLine[Asked], set[Asked]] = {}  # to repeat when one is first in its line
        self._large: set[Asked] = set()  # repeated gets under way
        self._unread = UnreadAnswers(wire, MUCH_UNREAD, self._go_on)
        self._tasks: set[asyncio.Task[None]] = set()
        self._begin: dict[type[Request] | type[None], Callable[[Asked, Any], None]] = {
            GetRequest: self._get,
            PutRequest: self._put,
            SubscribeRequest: self._subscribe,
            UnsubscribeRequest: self._unsubscribe,
        }
        self._say()

    # From the wire

    def received(self, data: bytes) -> None:
        if self._is_broken:
            return
        broken: zmtp_codec.ZmtpError | None = None
        try:
            messages = self._decoder.receive(data)
        except zmtp_codec.ZmtpError as error:
            messages, broken = error.before, error
        if self._decoder.to_say:
            self._say()
        if self._decoder.is_ready:
            self._wire.is_greeted = True
        incomplete = self._decoder.incomplete or self._decoder.is_in_a_message
        cost = self._wire.accept(data, len(messages), REQUEST_COST, 0 if broken else incomplete)
        for frames in messages:
            self._ask(frames, cost)
            cost = REQUEST_COST
        if broken is not None:
            self._is_broken = True
            self._start(self._end(str(broken), broken.last_words))

    def lost(self) -> None:
        self._closing = self._lost = True
        self._decoder.clear()
        for line in self._lines.values():
            line.drop()
        self._send_away()
        for line in list(self._early):
            self._ask_again(*self._early.pop(line))
        while self._again:
            self._answer(heappop(self._again)[1])

    async def finish(self) -> None:
        """Accept no more requests, end those that wait, and answer those under way."""
        self._closing = True
        self._send_away()
        await self._wire.all_answered()
        self._wire.close()

    def _send_away(self) -> None:
        for asked in list(self._gets):
            if asked.looking is not None:
                asked.looking.leave()

    def _say(self) -> None:
        self._wire.send(b"".join(self._decoder.to_say))
        self._decoder.to_say.clear()

    async def _end(self, reason: str, last_words: bytes) -> None:
        """Close the connection after the requests before are answered. End those that wait for a message."""
        log.info("a connection that is not served", extra={"reason": reason})
        self._closing = True
        self._send_away()
        await self._wire.all_answered()
        if last_words:
            self._wire.send(last_words)
        self._wire.close()

    def break_off(self, reason: str) -> None:
        self._closing = True
        self._wire.send(zmtp_codec.error(reason))
        self._wire.close()

    # Requests

    def _ask(self, frames: list[bytes], cost: int) -> None:
        if self._closing:
            self._wire.answered(cost)  # no answer: the client asks another node
            return
        request: Request | None = None
        if type(frames) is zmtp_codec.OversizedMessage:
            envelope, fields = pubsub_codec.split([*frames, REST])
        else:
            envelope, fields = pubsub_codec.split(frames)
            try:
                request = pubsub_codec.parse(fields)
            except Malformed:
                request = None
        line = self._lines.get(envelope)
        if line is None:
            line = self._lines[envelope] = RequestLine(self._wire, self._begin_with, self._unread)
        kind: Any = type(request) if type(request) in TOGETHER else None
        line.enter(
            Asked(
                request,
                cost,
                kind,
                number=next(self._numbers),
                line=line,
                envelope=envelope,
                as_text=len(fields) == 1,
            )
        )

    def _begin_with(self, asked: Asked) -> bool:
        request = asked.request
        if request is None:
            self._answer(asked, INVALID)
            return True
        if type(request) is GetRequest and not self._may_get():
            self._held[asked.line] = None
            return False
        try:
            self._begin[type(request)](asked, request)
        except InvalidInput:
            self._answer(asked, INVALID)
        return True

    def _answer(self, asked: Asked, *fields: bytes) -> None:
        """Answer a request. Without fields no answer is sent, which makes the client repeat the request."""
        line = asked.line
        data = b""
        if fields:
            frames = pubsub_codec.answer(fields, as_text=asked.as_text)
            data = zmtp_codec.encode((*asked.envelope, *frames))
        if not line.answer(asked, data):
            self._lines.pop(asked.envelope, None)
            self._early.pop(line, None)
        early = self._early.get(line)
        if early and (first := line.first) in early:
            those = {first} if self._unread.kept > MUCH_UNREAD else set(early)
            early -= those
            self._ask_again(*those)

    def _fail(self, asked: Asked, error: Exception) -> None:
        if isinstance(error, NoSuchSubscription):
            self._answer(asked, ERROR, NOT_SUBSCRIBED)
        elif isinstance(error, InvalidInput):
            self._answer(asked, INVALID)
        else:
            log.warning("a request is left unanswered", extra={"error": str(error)})
            self._answer(asked)

    # Put

    def _put(self, asked: Asked, request: PutRequest) -> None:
        self._broker.pubsub.put_soon(
            request.topic,
            PUBLISHERS + request.publisher,
            request.count,
            request.body,
            partial(self._was_put, asked),
            caller=self._wire.caller,
        )

    def _was_put(self, asked: Asked, turn: Turn | Exception) -> None:
        if not isinstance(turn, Turn):
            self._fail(asked, turn)
        elif turn.stored:
            self._answer(asked, ACCEPTED, b"%d" % turn.subscribers)
        else:
            self._answer(asked, ERROR, b"%d" % turn.registered)

    # Get

    def _may_get(self) -> bool:
        return len(self._gets) < MAX_GETS and not self._unread.is_much

    def _get(self, asked: Asked, request: GetRequest, wait: float | None = None) -> None:
        self._gets.add(asked)
        try:
            asked.looking = self._broker.pubsub.get_soon(
                request.topic,
                request.subscriber,
                request.id,
                partial(self._got, asked),
                wait=0.0 if self._closing else request.wait if wait is None else wait,
                caller=self._wire.caller,
            )
        except InvalidInput:
            self._gets.discard(asked)
            raise

    async def _get_large(self, asked: Asked, request: GetRequest) -> None:
        """Get a large message on its own. It exists, so there is nothing to wait for."""
        async with self._wire.replies:
            if self._lost:
                self._large.discard(asked)
                self._answer(asked)
                return
            asked.got = asyncio.get_running_loop().create_future()
            self._get(asked, request, 0.0)
            await asked.got

    def _got(self, asked: Asked, found: FoundEntry | Exception | None) -> None:
        asked.looking = None  # breaks a reference cycle, so both are freed without the garbage collector
        self._gets.discard(asked)
        self._large.discard(asked)
        if asked.got is not None:
            asked.got.set_result(None)
            asked.got = None
        if self._lost:
            self._answer(asked)
        elif found is None:
            self._ask_again(asked)
        elif isinstance(found, Exception):
            self._fail(asked, found)
        elif found.body is None:
            self._answer(asked, ERROR, b"%d" % found.latest)
        elif self._is_early(asked):
            self._early.setdefault(asked.line, set()).add(asked)
        else:
            self._answer(asked, ACCEPTED, b"%d" % found.latest, found.body)
        if self._again or self._held:
            self._go_on()

    def _is_early(self, asked: Asked) -> bool:
        """Return whether a request must wait for those before it while enough answers are waiting already."""
        return self._unread.kept > MUCH_UNREAD and asked.line.first is not asked

    def _ask_again(self, *those: Asked) -> None:
        for asked in those:
            heappush(self._again, (asked.number, asked))

    def _go_on(self) -> None:
        while self._again and self._may_get() and len(self._large) < AT_ONCE:
            asked = heappop(self._again)[1]
            if self._is_early(asked):
                self._early.setdefault(asked.line, set()).add(asked)
            else:
                self._large.add(asked)
                self._start(self._get_large(asked, asked.request))
        if not self._again and self._may_get():
            held, self._held = self._held, {}
            for line in held:
                line.advance()

    # Subscribe and unsubscribe: one task per request

    def _subscribe(self, asked: Asked, request: SubscribeRequest) -> None:
        self._start(self._work(asked, self._subscribed(request)))

    def _unsubscribe(self, asked: Asked, request: UnsubscribeRequest) -> None:
        self._start(self._work(asked, self._unsubscribed(request)))

    async def _subscribed(self, request: SubscribeRequest) -> Sequence[bytes]:
        created, last_id = await self._broker.pubsub.subscribe(request.topic, request.subscriber)
        if created:
            return ACCEPTED, b"%d" % last_id
        if request.resume:
            return ERROR, ALREADY_SUBSCRIBED, b"%d" % last_id
        return ERROR, ALREADY_SUBSCRIBED

    async def _unsubscribed(self, request: UnsubscribeRequest) -> Sequence[bytes]:
        await self._broker.pubsub.unsubscribe(request.topic, request.subscriber)
        return (ACCEPTED,)

    async def _work(self, asked: Asked, work: Coroutine[Any, Any, Sequence[bytes]]) -> None:
        try:
            self._answer(asked, *await work)
        except Exception as error:
            self._fail(asked, error)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
