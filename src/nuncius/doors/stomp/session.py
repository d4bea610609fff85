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
from nuncius.broker.background.tasks import BackgroundWork
from nuncius.doors.replies import Reply
from nuncius.doors.stomp.destinations import parse
from nuncius.doors.stomp.errors import StompRefusal, error_frame, explain
from nuncius.doors.stomp.frames.codec import BadFrame, Frame, FrameDecoder, FrameLimits
from nuncius.doors.stomp.frames.headers import required, sent
from nuncius.doors.stomp.frames.versions import StompError, header_line
from nuncius.doors.stomp.heartbeat import HeartBeat
from nuncius.doors.stomp.introduction import Introduction
from nuncius.doors.stomp.line import FRAME, FrameLine
from nuncius.doors.stomp.outbox import StompOutbox
from nuncius.doors.stomp.subscriptions.subscribing import GOODBYE, Subscribing
from nuncius.doors.stomp.transactions import StompTransaction, StompTransactions
from nuncius.doors.wire import Wire

REQUEST_COST = 500  # bytes of memory per open frame, besides its own
MAX_REASON = 1000
LOST = "the connection was lost"


class StompSession:
    speaks = "stomp"

    def __init__(
        self,
        broker: Broker,
        wire: Wire,
        introduction: Introduction,
        limits: FrameLimits,
        background: BackgroundWork,
    ) -> None:
        self._broker = broker
        self._wire = wire
        self._version = introduction.version
        self._decoder = FrameDecoder(self._version, limits)
        self._line = FrameLine(wire, self._begin_frame, background)
        self._under_way = 0  # frames that were passed on and are not answered
        self._idle = asyncio.Event()  # set when there are none; only for those who wait
        self._has_failed = False
        self._farewell: str | None = LOST
        self._outbox = StompOutbox(broker, introduction.login, wire.caller, background)
        self._transactions = StompTransactions(broker, self._outbox, wire)
        self._subscribing = Subscribing(broker, wire, introduction, background, self._break_off)
        self._heart_beat = HeartBeat(introduction.rhythm, wire, background, self._is_busy, self._found_dead)
        self._handlers: dict[str, Callable[[Frame, Reply], None]] = {
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

    # From the wire

    def received(self, data: bytes) -> None:
        self._heart_beat.heard = True
        if self._line.is_closed:
            return
        broken = False
        arrived: list[Any]
        try:
            arrived = self._decoder.receive(data)
        except StompError as error:
            arrived, broken = [*error.before, error], True
        cost = self._wire.accept(data, len(arrived), REQUEST_COST, self._decoder.incomplete)
        for frame in arrived:
            self._line.enter(Reply(frame, cost, FRAME))
            cost = REQUEST_COST
        if broken:
            self._line.is_closed = True

    def lost(self) -> None:
        """Carry out the frames that have arrived, then end the subscriptions."""
        self._line.is_closed = True
        self._decoder.clear()
        self._heart_beat.stop()
        self._line.at_the_end(self._leave)

    async def finish(self) -> None:
        """Accept no more frames, answer the accepted ones, and return messages to their queues."""
        self._line.is_closed = True
        self._farewell = GOODBYE
        await self._wire.all_answered()
        self._leave()
        self._wire.send(error_frame("the node is shutting down", self._version))
        self._wire.close()

    def break_off(self, reason: str) -> None:
        self._break_off(StompRefusal(reason))

    # Frames, one after the other

    def _begin_frame(self, reply: Reply) -> bool:
        if self._line.is_held_up:
            return False
        frame = reply.request
        try:
            if isinstance(frame, StompError):
                self._fail(reply, frame)
            else:
                self._handlers.get(frame.command, self._refuse)(frame, reply)
        except Exception as error:
            self._fail(reply, error)
        return True

    def _wait_for(self, reply: Reply, work: Coroutine[Any, Any, None]) -> None:
        self._line.wait_for(work, partial(self._answer, reply))

    def _answer(self, reply: Reply, error: Exception | None = None) -> None:
        """Send a RECEIPT if the frame wants one, or the last ERROR."""
        if error is not None:
            self._fail(reply, error)
            return
        receipt = reply.request.headers.get("receipt")
        self._line.answer(reply, b"" if receipt is None else self._receipt(receipt))

    def _done(self, reply: Reply, result: Any) -> None:
        """Answer a frame that was passed on, with its result."""
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()
        self._answer(reply, result if isinstance(result, Exception) else None)

    async def _all_done(self) -> None:
        """Wait until the frames that were passed on are carried out."""
        self._idle.clear()
        if self._under_way:
            await self._idle.wait()

    def _fail(self, reply: Reply, error: Exception) -> None:
        """End the connection after the frames before this one are answered."""
        self._line.is_closed = self._has_failed = reply.is_last = True
        self._line.drop()
        about = error.frame if isinstance(error, BadFrame) else reply.request
        frame = about if isinstance(about, Frame) else None
        self._line.answer(reply, error_frame(explain(error), self._version, frame))
        self._leave()

    def _break_off(self, error: Exception) -> None:
        """End the connection for a reason other than a frame."""
        if not self._line.is_closed:
            self._fail(self._line.owe(Reply(None, 0, FRAME)), error)

    def _leave(self) -> None:
        self._transactions.abort_all()
        self._subscribing.stop(self._farewell)

    def _receipt(self, receipt: str) -> bytes:
        return f"RECEIPT\n{header_line('receipt-id', receipt, self._version)}\n\0".encode()

    def _is_busy(self) -> bool:
        """Return whether the node may have paused reading from this client."""
        return self._under_way > 0 or self._line.is_held_up or self._broker.pressure.is_high

    def _found_dead(self) -> None:
        self._break_off(StompRefusal("no heart-beat has come for too long"))

    # Commands

    def _refuse(self, frame: Frame, reply: Reply) -> None:
        raise StompRefusal(f"no command {frame.command[:100]!r} is known here")

    def _send(self, frame: Frame, reply: Reply) -> None:
        to = parse(required(frame, "destination"))
        message = sent(frame, to_queue=to.is_queue)
        transaction = frame.headers.get("transaction")
        self._subscribing.note_sent(to)
        if transaction is None:
            self._under_way += 1
            self._outbox.send(to, message, partial(self._done, reply))
        else:
            self._transactions.send(transaction, to, message)
            self._answer(reply)

    def _ack(self, frame: Frame, reply: Reply) -> None:
        self._acknowledge(frame, reply, None)

    def _nack(self, frame: Frame, reply: Reply) -> None:
        self._acknowledge(frame, reply, frame.headers.get("reason", "refused by the client")[:MAX_REASON])

    def _acknowledge(self, frame: Frame, reply: Reply, reason: str | None) -> None:
        by, ack_id = self._subscribing.acknowledged_by(frame)
        transaction = frame.headers.get("transaction")
        if transaction is None:
            claimed: Any = by.claim(ack_id, by_transaction=False)
            self._under_way += 1
            by.acknowledge(claimed, reason, partial(self._done, reply))
        else:
            self._transactions.acknowledge(transaction, by, ack_id, reason)
            self._answer(reply)

    def _subscribe(self, frame: Frame, reply: Reply) -> None:
        self._wait_for(reply, self._subscribing.subscribe(frame))

    def _unsubscribe(self, frame: Frame, reply: Reply) -> None:
        self._wait_for(reply, self._subscribing.unsubscribe(frame))

    def _begin(self, frame: Frame, reply: Reply) -> None:
        self._transactions.begin(frame)
        self._answer(reply)

    def _abort(self, frame: Frame, reply: Reply) -> None:
        self._transactions.abort(frame)
        self._answer(reply)

    def _commit(self, frame: Frame, reply: Reply) -> None:
        self._wait_for(reply, self._commit_after_all(self._transactions.take(frame)))

    async def _commit_after_all(self, transaction: StompTransaction) -> None:
        """Commit after the messages before the COMMIT are stored."""
        await self._all_done()
        if self._has_failed:
            self._transactions.restore(transaction)
            raise StompRefusal("the connection failed before its transaction was committed")
        await self._transactions.commit(transaction)

    def _disconnect(self, frame: Frame, reply: Reply) -> None:
        """End the connection after all frames before this one are carried out and answered."""
        self._line.is_closed = True
        self._farewell = GOODBYE
        self._line.drop()
        reply.is_last = True
        self._wait_for(reply, self._say_goodbye())

    async def _say_goodbye(self) -> None:
        """Deliver the messages that the client has sent to itself. Durable subscriptions keep their
        position."""
        self._transactions.abort_all()
        await self._all_done()
        if not self._has_failed:
            await self._subscribing.deliver_own()
        await self._subscribing.close()
