"""A connection of an RPC client: calls become calls of services, in any number and any order."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

from nuncius.broker.errors import BrokerError, StoreError
from nuncius.broker.model import Pressure
from nuncius.cluster.storage import StorageError
from nuncius.doors.begun import Begun
from nuncius.doors.tribbler import jsonrpc_codec, rpc_codec
from nuncius.doors.tribbler.gob_wire_codec import GobError, Mismatch
from nuncius.doors.tribbler.rpc_codec import HandshakeError
from nuncius.doors.tribbler.services import Method, Services, UnknownMethod
from nuncius.doors.tribbler.turns import Turns
from nuncius.doors.wire import Wire

log = logging.getLogger(__name__)

CALL_COST = 2000  # bytes of memory an open call takes, besides its arguments
LAST_ANSWERS_SECONDS = 60.0  # for a client that asks nothing more; it may be gone


class RpcSession:
    def __init__(self, services: Services, wire: Wire, pressure: Pressure) -> None:
        self._services = services
        self._wire = wire
        self._codec: rpc_codec.ServerCodec | jsonrpc_codec.ServerCodec | None = None
        self._begun = Begun(pressure)
        self._closing = self._lost = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = Turns(wire)
        wire.on_end = self._end

    def received(self, data: bytes) -> None:
        if self._codec is None:
            self._codec = _codec_of(data)
        codec = self._codec
        try:
            calls = codec.receive(data)
        except HandshakeError as error:
            self._give_up(str(error), error.last_words)
            return
        except (GobError, Mismatch) as error:
            self._give_up(str(error), codec.to_say)
            return
        if codec.to_say:
            self._wire.send(codec.to_say)
            codec.to_say = b""
        cost = CALL_COST + self._begun.size + len(data)  # with what had come of it before
        for call in calls:
            if not self._closing:
                self._begin(call, cost)
            cost = CALL_COST
        if self._begun.note(codec.incomplete):
            self._give_up("too many large requests have begun and do not end")

    def lost(self) -> None:
        self._closing = self._lost = True
        self._begun.note(0)

    async def finish(self) -> None:
        """No more calls; those under way are answered, or given up by whoever closes the wire."""
        self._closing = True
        await self._wire.all_answered()
        self._wire.close()

    def _end(self) -> bool:
        """A JSON client may be a line in a shell, which closes its own side first and then reads. Others have
        gone when they say no more."""
        if not self._tasks or not isinstance(self._codec, jsonrpc_codec.ServerCodec):
            return False
        self._keep(self._finish_soon())
        return True

    async def _finish_soon(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_ANSWERS_SECONDS):
                await self.finish()
        self._wire.close()

    def _begin(self, call: Any, cost: int) -> None:
        assert self._codec is not None
        try:
            method = self._services.find(call.method)
            arguments = self._codec.arguments(call, method.arguments)
        except (UnknownMethod, Mismatch) as error:
            self._wire.send(self._codec.refuse(call, str(error)))
            return
        except GobError as error:
            self._give_up(str(error))
            return
        self._wire.accept(cost)
        self._keep(self._carry_out(method, arguments, call, cost))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, method: Method, arguments: Any, call: Any, cost: int) -> None:
        assert self._codec is not None
        answer = b""
        try:
            if method.reads:
                await self._turns.begin()
            if not (method.reads and self._lost):  # a change is made even if nobody is there to hear of it
                answer = self._codec.answer(call, await method.call(arguments))
        except (StorageError, StoreError, BrokerError) as error:
            answer = self._codec.refuse(call, str(error))
        except Exception as error:
            log.exception("a call failed by a fault of ours", extra={"method": call.method[:100]})
            answer = self._codec.refuse(call, f"internal error: {type(error).__name__}")
        finally:
            self._wire.answered(cost)
        self._wire.send(answer)
        if method.reads:  # after what was sent has gone out
            asyncio.get_running_loop().call_soon(self._turns.end, len(answer))

    def _give_up(self, reason: str, last_words: bytes = b"") -> None:
        log.info("a connection that is not served", extra={"reason": reason[:200]})
        self._closing = True
        if last_words:
            self._wire.send(last_words)
        self._wire.close()


def _codec_of(data: bytes) -> rpc_codec.ServerCodec | jsonrpc_codec.ServerCodec:
    """A JSON-RPC request begins with a bracket, an HTTP request with a word, and gob with the length of the
    first type, which is neither."""
    if data.lstrip()[:1] == b"{":
        return jsonrpc_codec.ServerCodec()
    return rpc_codec.ServerCodec(over_http=data[:1].isalpha())
