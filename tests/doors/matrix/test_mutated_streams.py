"""Every listener against streams that were valid once: bytes changed, cut, doubled and swapped."""

import asyncio
import contextlib
import logging
import random
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from doors.matrix.house import House, open_house
from doors.zeromq.peer import READY_OF_DEALER
from nuncius.doors.telesto import table as telesto_table
from nuncius.doors.telesto.codec import Codec
from nuncius.doors.telesto.table import Answer, Dialect
from nuncius.doors.tribbler.door import TribblerDoor
from nuncius.doors.tribbler.rpc_codec import CONNECT, ClientCodec
from nuncius.doors.tribbler.storage_messages import GetArgs, PutArgs
from nuncius.doors.zeromq.zmtp_codec import GREETING
from nuncius.doors.zeromq.zmtp_codec import encode as zmtp
from nuncius.ring.settings import RingSettings
from nuncius.wire import codec as native
from nuncius.wire import packets
from racing import until
from telesto_peer import message

MUTANTS = 120  # of each stream
AT_ONCE = 20
SECONDS = 60.0


def native_stream() -> bytes:
    """Say hello, publish, put, take, subscribe, read and confirm."""
    said = [
        packets.Hello(1, "fuzzed", 1, "fuzzed"),
        packets.Publish(2, "t", [b"x", b"y"], ["k", None], None, 0, 0),
        packets.Put(3, ["q"], [b"x"], [5], [0], [2], ['{"a": "b"}']),
        packets.Take(4, "q", 1, 1, 0, 0, 0),
        packets.Subscribe(5, "t", "s"),
        packets.Confirm(6, "t", "s", 1, 0),
        packets.Ping(7),
    ]
    return native.MAGIC + b"".join(map(native.encode, said))


def telesto_stream(dialect: Dialect) -> bytes:
    codec = Codec(dialect, Answer)
    said = [
        telesto_table.Ping(1),
        telesto_table.RegisterClient(2, "fuzzed", 1),
        telesto_table.CreateQueue(3, "q"),
        telesto_table.PutMessage(4, message(1, "text"), []),
        telesto_table.ReadMessage(5, 1, 0, 1),
    ]
    return b"".join(map(codec.encode, said))


def tribbler_stream() -> bytes:
    codec = ClientCodec()
    calls = [
        codec.call(1, "StorageRPC.Put", PutArgs("k:1", "v")),
        codec.call(2, "StorageRPC.Get", GetArgs("k:1")),
        codec.call(3, "StorageRPC.AppendToList", PutArgs("l:1", "v")),
    ]
    return CONNECT + b"".join(calls)


@dataclass(frozen=True)
class Stream:
    """What a well-behaved client says, and at which port."""

    listener: str
    said: bytes
    port: Callable[[House, int], int]


STOMP_STREAM = (
    b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:0,0\n\n\0"
    b"SUBSCRIBE\nid:1\ndestination:/topic/t\nack:client\n\n\0"
    b"SEND\ndestination:/topic/t\ncontent-length:3\nreceipt:r\n\nabc\0"
    b"BEGIN\ntransaction:x\n\n\0SEND\ndestination:/queue/q\ntransaction:x\n\nabc\0COMMIT\ntransaction:x\n\n\0"
    b"DISCONNECT\nreceipt:last\n\n\0"
)
SLIM_STREAM = (
    b"CONNECT\nlogin:me\n\n\0SUBSCRIBE\ndestination:t\n\n\0SEND\ntopic:t\n\nprice: 22.1\n\n\0DISCONNECT\n\n\0"
)
ZEROMQ_STREAM = (
    GREETING
    + READY_OF_DEALER
    + zmtp([b"", b"s sue t"])
    + zmtp([b"", b"p bob t 1 text"])
    + zmtp([b"", b"g sue t 0"])
    + zmtp([b"", b"u", b"sue", b"t"])
)
HTTP_STREAM = (
    b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b'Content-Length: 28\r\n\r\n{"body":"a","key":"k\\u00e9"}'
    b"POST /producer/register HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'd\r\n{"topic":"t"}\r\n0\r\n\r\n'
    b"GET /consumer/consume?topic=t&consumer_id=1 HTTP/1.1\r\nHost: x\r\n\r\n"
    b"GET /v1/topics/t/partitions/1/messages?offset=0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
)
JSON_RPC_STREAM = (
    b'{"method":"StorageRPC.Put","params":[{"Key":"k:1","Value":"v"}],"id":1}'
    b'{"method":"StorageRPC.Get","params":[{"Key":"k:1","WantLease":false,"LeaseClient":""}],"id":2}'
)

STREAMS = [
    Stream("native", native_stream(), lambda house, _: house.telesto_port),
    Stream("telesto, deployed", telesto_stream(Dialect.DEPLOYED), lambda house, _: house.telesto_port),
    Stream("telesto, report", telesto_stream(Dialect.REPORT), lambda house, _: house.telesto_port),
    Stream("stomp", STOMP_STREAM, lambda house, _: house.stomp.port),
    Stream("slim stomp", SLIM_STREAM, lambda house, _: house.stomp.port),
    Stream("zeromq", ZEROMQ_STREAM, lambda house, _: house.zeromq.port),
    Stream("http", HTTP_STREAM, lambda house, _: house.http.port),
    Stream("gob", tribbler_stream(), lambda _, tribbler: tribbler),
    Stream("json-rpc", JSON_RPC_STREAM, lambda _, tribbler: tribbler),
]


def mutants(stream: bytes, seed: int) -> list[bytes]:
    """Change a stream in up to four places: bytes overwritten, removed, doubled, swapped, or numbers made
    huge."""
    dice = random.Random(seed)
    made = []
    for _ in range(MUTANTS):
        mutant = bytearray(stream)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(mutant))
            to = min(len(mutant), at + dice.randint(1, 40))
            choice = dice.randrange(6)
            if choice == 0:
                mutant[at] = dice.randrange(256)
            elif choice == 1 and len(mutant) > 100:
                del mutant[at:to]
            elif choice == 2:
                mutant[to:to] = mutant[at:to]
            elif choice == 3:
                mutant[at:at] = dice.randbytes(dice.randint(1, 8))
            elif choice == 4:
                mutant[at : at + 4] = struct.pack(">I", dice.choice((0, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 16)))
            else:
                mutant[at:to] = mutant[at:to][::-1]
        made.append(bytes(mutant))
    return made


async def works(house: House, stream: Stream, port: int) -> bool:
    """Return whether a well-behaved client is served. For the native protocol and HTTP the end of a stream is
    the end of its client, so a client that stays asks."""
    if stream.listener == "native":
        return (await house.native.publish("t", b"x")).offset is not None
    if stream.listener == "http":
        return bool((await house.call("GET", "/v1/topics"))["topics"] is not None)
    return bool(await said_to(port, stream.said))


async def said_to(port: int, data: bytes) -> bytes:
    """Send everything, say that no more comes, and return what comes back until the listener closes too."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(SECONDS):
                while piece := await reader.read(1 << 16):
                    answer += piece
    finally:
        writer.transport.abort()
    return answer


@asynccontextmanager
async def open_everything(dsn: str) -> AsyncIterator[tuple[House, int]]:
    async with open_house(dsn) as house:
        tribbler = TribblerDoor(house.broker, RingSettings(7))
        try:
            yield house, await tribbler.open("127.0.0.1", 0)
        finally:
            await tribbler.close()


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.listener)
async def test_a_listener_survives_mutated_streams(
    dsn: str,
    no_safety_net: None,  # noqa: ARG001  (in force while it runs)
    caplog: pytest.LogCaptureFixture,
    stream: Stream,
) -> None:
    """Every mutant is answered or refused and its connection ends, no error is logged, the node gives back
    all memory, and the valid stream works as before."""
    async with open_everything(dsn) as (house, tribbler):
        port = stream.port(house, tribbler)
        assert await works(house, stream, port)
        waiting = iter(mutants(stream.said, seed=len(stream.said)))

        async def attack() -> None:
            for mutant in waiting:
                await said_to(port, mutant)

        await asyncio.gather(*(attack() for _ in range(AT_ONCE)))
        await until(lambda: house.broker.pressure.level == 0)
        assert house.broker.pressure.held == 0
        assert await works(house, stream, port)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
