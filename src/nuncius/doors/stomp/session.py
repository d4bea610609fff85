"""Serve a STOMP connection: frames become broker calls, results become frames.

Frames are handled in the order in which they came. Most are only passed on, and the next follows at once.
SUBSCRIBE, UNSUBSCRIBE and COMMIT change the meaning of later frames, so these wait: a client that subscribes
and then sends receives what it sent.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from nuncius.broker import Broker
from nuncius.doors.stomp.answers import Answer, Answers
from nuncius.doors.stomp.background import Background
from nuncius.doors.stomp.carrier import Carrier
from nuncius.doors.stomp.destinations import parse
from nuncius.doors.stomp.errors import Refused, error_frame, explain
from nuncius.doors.stomp.frames.codec import BadFrame, Frame, FrameDecoder, FrameLimits
from nuncius.doors.stomp.frames.headers import required, sent
from nuncius.doors.stomp.frames.versions import StompError, header_line
from nuncius.doors.stomp.heartbeat import HeartBeat
from nuncius.doors.stomp.introduction import Introduction
from nuncius.doors.stomp.line import Line
from nuncius.doors.stomp.outbox import StompOutbox
from nuncius.doors.stomp.subscriptions.subscribing import GOODBYE, Subscribing
from nuncius.doors.stomp.transactions import StompTransaction, StompTransactions

REQUEST_COST = 500  # bytes of memory per open frame, besides its own
MAX_REASON = 1000
LOST = "the connection was lost"


class StompSession:
    def __init__(
        self,
        broker: Broker,
        carrier: Carrier,
        introduction: Introduction,
        limits: FrameLimits,
        background: Background,
    ) -> None:
        self._broker = broker
        self._carrier = carrier
        self._version = introduction.version
        self._decoder = FrameDecoder(self._version, limits)
        self._answers = Answers(carrier)
        self._line = Line(self._answers, background)
        self._under_way = 0  # frames that were passed on and are not answered
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_over = False  # no more frames are handled
        self._has_failed = False
        self._farewell: str | None = LOST
        self._outbox = StompOutbox(broker, introduction.login, self, background)
        self._transactions = StompTransactions(broker, self._outbox, carrier.footprint)
        self._subscribing = Subscribing(broker, carrier, introduction, background, self, self._break_off)
        self._heart_beat = HeartBeat(
            introduction.rhythm, carrier, background, self._is_busy, self._found_dead
        )
        self._handlers: dict[str, Callable[[Frame, Answer], None]] = {
            "SEND": self._send,
            "ACK": self._ack,
            "NACK": self._nack,
            "SUBSCRIBE": self._subscribe,
            "UNSUBSCRIBE": self._unsubscribe,
            "BEGIN": self._begin,
            "COMMIT": self._commit,
            "ABORT": self._abort,
            "DISCONNECT": self._disconnect,
        }
        self._heart_beat.start()

    # From the carrier

    def received(self, data: bytes) -> None:
        self._heart_beat.heard = True
        if self._is_over:
            return
        cost = REQUEST_COST + len(data)  # covers all frames in `data`; counted with the first
        try:
            for frame in self._decoder.receive(data):
                if not self._take(frame, cost):
                    return
                cost = REQUEST_COST
        except StompError as error:
            self._is_over = True
            answer = self._answers.owe(b"", cost)
            about = error.frame if isinstance(error, BadFrame) else None
            self._line.enter(partial(self._fail, about, answer, error), answer)
        self._carrier.footprint.begin(self._decoder.incomplete)

    def lost(self) -> None:
        """Carry out the frames that have arrived, then end the subscriptions."""
        self._is_over = True
        self._decoder.clear()
        self._heart_beat.stop()
        self._line.at_the_end(self._leave)

    async def finish(self) -> None:
        """Accept no more frames, answer the accepted ones, and return messages to their queues."""
        self._is_over = True
        self._farewell = GOODBYE
        await self._carrier.all_answered()
        self._leave()
        if not self._answers.are_over:
            self._carrier.send(error_frame("the node is shutting down", self._version))
            self._carrier.close()

    def break_off(self, reason: str) -> None:
        self._break_off(Refused(reason))

    # Frames, one after the other

    def _take(self, frame: Frame, cost: int) -> bool:
        """Handle a frame in its turn. Return whether more frames may follow."""
        receipt = frame.headers.get("receipt")
        answer = self._answers.owe(b"" if receipt is None else self._receipt(receipt), cost)
        self._line.enter(partial(self._handle, frame, answer), answer)
        return not self._is_over

    def _handle(self, frame: Frame, answer: Answer) -> None:
        handler = self._handlers.get(frame.command, self._refuse)
        try:
            handler(frame, answer)
        except Exception as error:
            self._fail(frame, answer, error)

    def _wait_for(self, frame: Frame, answer: Answer, work: Coroutine[Any, Any, None]) -> None:
        self._line.wait_for(work, partial(self._waited, frame, answer))

    def _waited(self, frame: Frame, answer: Answer, error: Exception | None) -> None:
        if error is None:
            self._answers.give(answer)
        else:
            self._fail(frame, answer, error)

    def _hand_on(self) -> None:
        self._under_way += 1
        self._idle.clear()

    def _done(self, frame: Frame, answer: Answer, result: Any) -> None:
        """Answer a frame that was passed on, with its result."""
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()
        if isinstance(result, Exception):
            self._fail(frame, answer, result)
        else:
            self._answers.give(answer)

    def _fail(self, frame: Frame | None, answer: Answer, error: Exception) -> None:
        """End the connection after the frames before this one are answered."""
        self._is_over = self._has_failed = True
        self._answers.end(answer, error_frame(explain(error), self._version, frame))
        self._line.drop()
        self._leave()

    def _break_off(self, error: Exception) -> None:
        """End the connection for a reason other than a frame."""
        if not self._is_over:
            self._fail(None, self._answers.owe(b"", 0), error)

    def _leave(self) -> None:
        self._transactions.abort_all()
        self._subscribing.stop(self._farewell)

    def _receipt(self, receipt: str) -> bytes:
        return f"RECEIPT\n{header_line('receipt-id', receipt, self._version)}\n\0".encode()

    def _is_busy(self) -> bool:
        """Return whether the node may have paused reading from this client."""
        return self._under_way > 0 or self._line.is_held_up or self._broker.pressure.is_high

    def _found_dead(self) -> None:
        self._break_off(Refused("no heart-beat has come for too long"))

    # Commands

    def _refuse(self, frame: Frame, answer: Answer) -> None:
        raise Refused(f"no command {frame.command[:100]!r} is known here")

    def _send(self, frame: Frame, answer: Answer) -> None:
        to = parse(required(frame, "destination"))
        message = sent(frame, to_queue=to.is_queue)
        transaction = frame.headers.get("transaction")
        self._subscribing.note_sent(to)
        if transaction is None:
            self._hand_on()
            self._outbox.send(to, message, partial(self._done, frame, answer))
        else:
            self._transactions.send(transaction, to, message)
            self._answers.give(answer)

    def _ack(self, frame: Frame, answer: Answer) -> None:
        self._acknowledge(frame, answer, None)

    def _nack(self, frame: Frame, answer: Answer) -> None:
        self._acknowledge(frame, answer, frame.headers.get("reason", "refused by the client")[:MAX_REASON])

    def _acknowledge(self, frame: Frame, answer: Answer, reason: str | None) -> None:
        by, ack_id = self._subscribing.acknowledged_by(frame)
        transaction = frame.headers.get("transaction")
        if transaction is None:
            claimed: Any = by.claim(ack_id, by_transaction=False)
            self._hand_on()
            by.acknowledge(claimed, reason, partial(self._done, frame, answer))
        else:
            self._transactions.acknowledge(transaction, by, ack_id, reason)
            self._answers.give(answer)

    def _subscribe(self, frame: Frame, answer: Answer) -> None:
        self._wait_for(frame, answer, self._subscribing.subscribe(frame))

    def _unsubscribe(self, frame: Frame, answer: Answer) -> None:
        self._wait_for(frame, answer, self._subscribing.unsubscribe(frame))

    def _begin(self, frame: Frame, answer: Answer) -> None:
        self._transactions.begin(frame)
        self._answers.give(answer)

    def _abort(self, frame: Frame, answer: Answer) -> None:
        self._transactions.abort(frame)
        self._answers.give(answer)

    def _commit(self, frame: Frame, answer: Answer) -> None:
        self._wait_for(frame, answer, self._commit_after_all(self._transactions.take(frame)))

    async def _commit_after_all(self, transaction: StompTransaction) -> None:
        """Commit after the messages before the COMMIT are stored."""
        await self._idle.wait()
        if self._has_failed:
            self._transactions.restore(transaction)
            raise Refused("the connection failed before its transaction was committed")
        await self._transactions.commit(transaction)

    def _disconnect(self, frame: Frame, answer: Answer) -> None:
        """End the connection after all frames before this one are carried out and answered."""
        self._is_over = True
        self._farewell = GOODBYE
        self._line.drop()
        answer.is_last = True
        self._wait_for(frame, answer, self._say_goodbye())

    async def _say_goodbye(self) -> None:
        """Deliver the messages that the client has sent to itself. Durable subscriptions keep their
        position."""
        self._transactions.abort_all()
        await self._idle.wait()
        if not self._has_failed:
            await self._subscribing.deliver_own()
        await self._subscribing.close()
