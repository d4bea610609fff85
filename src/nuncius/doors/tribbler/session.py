"""Serve a connection of an RPC client: its calls run concurrently and are answered in any order."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

from nuncius.broker.errors import BrokerError, StoreError
from nuncius.doors.tribbler import jsonrpc_codec, rpc_codec
from nuncius.doors.tribbler.gob_wire_codec import GobError, Mismatch
from nuncius.doors.tribbler.rpc_codec import HandshakeError
from nuncius.doors.tribbler.services import Method, Services, UnknownMethod
from nuncius.doors.wire import Wire
from nuncius.ring.storage import StorageError

log = logging.getLogger(__name__)

CALL_COST = 2000  # bytes of memory per open call, besides its arguments
LAST_ANSWERS_SECONDS = 60.0  # for a client that has stopped sending; it may be gone


class RpcSession:
    speaks = "rpc"

    def __init__(self, services: Services, wire: Wire) -> None:
        self._services = services
        self._wire = wire
        self._codec: rpc_codec.ServerCodec | jsonrpc_codec.JsonServerCodec | None = None
        self._closing = self._lost = False
        self._tasks: set[asyncio.Task[None]] = set()
        wire.on_end = self._end

    def received(self, data: bytes) -> None:
        if self._is_closing():
            return
        if self._codec is None:
            self._codec = _codec_of(data)
        codec, footprint = self._codec, self._wire.footprint
        each = CALL_COST + footprint.incomplete  # including its bytes that arrived before
        try:
            for call in codec.receive(data):
                self._say(codec)
                self._wire.is_greeted = True
                self._begin(call, self._wire.accept(data, 1, each, 0))
                data, each = b"", CALL_COST
                if self._is_closing():
                    return
        except HandshakeError as error:
            self._give_up(str(error), error.last_words)
            return
        except (GobError, Mismatch) as error:
            self._give_up(str(error), codec.to_say)
            return
        self._say(codec)
        self._wire.accept(data, 0, 0, codec.incomplete)

    def _is_closing(self) -> bool:
        return self._closing

    def _say(self, codec: rpc_codec.ServerCodec | jsonrpc_codec.JsonServerCodec) -> None:
        if codec.to_say:
            self._wire.is_greeted = True
            self._wire.send(codec.to_say)
            codec.to_say = b""

    def lost(self) -> None:
        self._closing = self._lost = True
        if not self._tasks:
            self._codec = None  # drops an incomplete call

    async def finish(self) -> None:
        """Accept no more calls. Those under way are answered, or given up if the listener closes the wire
        first."""
        self._closing = True
        await self._wire.all_answered()
        self._wire.close()

    def _end(self) -> bool:
        """Keep answering a JSON client that has closed its side: it may be a shell pipeline, which then
        reads. Other clients have gone by then."""
        if not self._tasks or not isinstance(self._codec, jsonrpc_codec.JsonServerCodec):
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
            self._wire.answer(self._codec.refuse(call, str(error)), cost)
            return
        except GobError as error:
            self._wire.answered(cost)
            self._give_up(str(error))
            return
        self._keep(self._carry_out(method, arguments, call, cost))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, method: Method, arguments: Any, call: Any, cost: int) -> None:
        """Carry out a call. A write is carried out even if the client has gone; a read is not."""
        answer = b""
        try:
            if not method.reads:
                answer = await self._answer(method, arguments, call)
            else:
                async with self._wire.replies:
                    if not self._lost:
                        answer = await self._answer(method, arguments, call)
        finally:
            self._wire.answered(cost)
        self._wire.send(answer)

    async def _answer(self, method: Method, arguments: Any, call: Any) -> bytes:
        assert self._codec is not None
        try:
            return self._codec.answer(call, await method.call(arguments))
        except (StorageError, StoreError, BrokerError) as error:
            return self._codec.refuse(call, str(error))
        except Exception as error:
            log.exception("a call failed by a fault of ours", extra={"method": call.method[:100]})
            return self._codec.refuse(call, f"internal error: {type(error).__name__}")

    def break_off(self, reason: str) -> None:
        """Close without an error: in Go RPC every error answers a call."""
        self._closing = True
        self._wire.close()

    def _give_up(self, reason: str, last_words: bytes = b"") -> None:
        """Close the connection after the calls before are answered."""
        if self._closing:
            return
        log.info("a connection that is not served", extra={"reason": reason[:200]})
        self._closing = True
        self._wire.footprint.begin(0)
        if last_words:
            self._wire.send(last_words)
        if self._tasks:
            self._keep(self._finish_soon())
        else:
            self._wire.close()


def _codec_of(data: bytes) -> rpc_codec.ServerCodec | jsonrpc_codec.JsonServerCodec:
    """Return the codec for a connection that begins with these bytes. A JSON-RPC request begins with a
    bracket, an HTTP request with a word, and gob with the length of the first type, which is neither."""
    if data.lstrip()[:1] == b"{":
        return jsonrpc_codec.JsonServerCodec()
    return rpc_codec.ServerCodec(over_http=data[:1].isalpha())
