"""Clients that ask for much and read nothing, one kind for each door and each way to ask."""

import asyncio
import base64
import json
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from nuncius.client import AsyncClient
from nuncius.doors.telesto import table
from nuncius.doors.telesto.codec import Codec
from nuncius.doors.telesto.table import ClientMode, Dialect
from nuncius.doors.zeromq.zmtp_codec import GREETING, encode
from nuncius.wire import codec as native
from nuncius.wire import packets

LARGE = 8 << 20  # bytes of a message
AFTER_AN_ANSWER = b"<wait>"
QUEUE = CLIENT = 1  # the first of their kind
ZMTP_READY = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03REQ"
_codec = Codec(Dialect.REPORT)
STOMP_CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
NATIVE_HELLO = native.MAGIC + native.encode(packets.Hello(1))


@dataclass(frozen=True, slots=True)
class Ports:
    telesto: int
    stomp: int
    zeromq: int
    http: int
    tribbler: int


async def fill(ports: Ports) -> None:
    """Publishes what the clients ask for."""
    body = b"x" * LARGE
    async with AsyncClient(f"nuncius://127.0.0.1:{ports.telesto}", timeout=60) as client:
        await client.subscribe("large", "sse", start="earliest")
        for _ in range(4):
            await client.publish("large", body)
        await client.publish("small", b"x")
        assert await client.create_queue("texts") == QUEUE
        await client.put_batch("texts", [b"y" * 2000] * 40)
    await answer_of(ports.telesto, _codec.encode(table.RegisterClient(0, "ann", ClientMode.FULL)), b"\x01")


async def _connect(port: int) -> socket.socket:
    """A connection with a narrow window, which nobody reads from."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    return made


def http_get(path: str, *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def http_post(path: str, size: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n\r\n".encode()


def framed(data: bytes) -> bytes:
    """A text message of a WebSocket client, with a mask of zeros."""
    return b"\x81" + bytes((0x80 | len(data),)) + bytes(4) + data


def telesto(_: int) -> bytes:
    asked = [table.GetMessages(n, QUEUE) for n in range(1000)]
    return b"".join(map(_codec.encode, [table.IdentifyClient(0, CLIENT), *asked]))


def native_fetch(_: int) -> bytes:
    return NATIVE_HELLO + b"".join(native.encode(packets.Fetch(n, "large", 1, 0, 1)) for n in range(2, 10))


def stomp_frames(_: int) -> bytes:
    return STOMP_CONNECT + b"SUBSCRIBE\nid:1\ndestination:/topic/large\nstart:earliest\n\n\0"


def upgrade_to_stomp() -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    return http_get(
        "/stomp",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Protocol: v12.stomp",
    )


def websocket(number: int) -> bytes:
    connect, subscribe, _ = stomp_frames(number).split(b"\0")
    return upgrade_to_stomp() + AFTER_AN_ANSWER + framed(connect + b"\0") + framed(subscribe + b"\0")


def zeromq(_: int) -> bytes:
    asked = [encode([b"", b"g", b"ann", b"large", b"%d" % n]) for n in (0, 1, 2, 3) * 3]
    return GREETING + ZMTP_READY + b"".join(asked)


def http_raw(_: int) -> bytes:
    return http_get("/v1/topics/large/partitions/1/messages/0/raw") * 4


def http_json(_: int) -> bytes:
    return http_get("/v1/topics/large/partitions/1/messages?offset=0") * 4


def http_events(_: int) -> bytes:
    return http_get("/v1/topics/large/subscriptions/sse/events")


def tribbler(_: int) -> bytes:
    call = {"method": "StorageRPC.Get", "params": [{"Key": "large"}], "id": 1}
    return json.dumps(call).encode() * 20


async def answer_of(port: int, data: bytes, until: bytes) -> bytes:
    """What a client that reads is told, up to some bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=LARGE * 4)
    try:
        first, _, rest = data.partition(AFTER_AN_ANSWER)
        writer.write(first)
        async with asyncio.timeout(60):
            if rest:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(rest)
            return await reader.readuntil(until)
    finally:
        writer.close()


async def read_native(ports: Ports) -> None:
    async with AsyncClient(f"nuncius://127.0.0.1:{ports.telesto}", timeout=60) as client:
        assert (await client.fetch("small", 1, 0))[0].body == b"x"
        assert len((await client.fetch("large", 1, 0, limit=1))[0].body) == LARGE


async def read_telesto(ports: Ports) -> None:
    asked = (table.IdentifyClient(0, CLIENT), table.GetMessages(1, QUEUE))
    await answer_of(ports.telesto, b"".join(map(_codec.encode, asked)), b"y" * 2000)


async def read_stomp(ports: Ports) -> None:
    await answer_of(ports.stomp, stomp_frames(0), b"x" * 1000 + b"\0")


async def read_websocket(ports: Ports) -> None:
    await answer_of(ports.http, websocket(0), b"x" * 1000 + b"\0")


async def read_zeromq(ports: Ports) -> None:
    asked = GREETING + ZMTP_READY + encode([b"", b"g", b"ann", b"large", b"3"]) + encode([b"", b"nonsense"])
    await answer_of(ports.zeromq, asked, b"\0\x01i")


async def read_http(ports: Ports) -> None:
    path = "/v1/topics/large/partitions/1/messages/0/raw"
    await answer_of(ports.http, http_get(path), b"x" * LARGE)


async def read_events(ports: Ports) -> None:
    await answer_of(ports.http, http_events(0), b"id: 1:2\n")


async def read_tribbler(ports: Ports) -> None:
    asked = {"method": "StorageRPC.Get", "params": [{"Key": "large"}], "id": 1}
    await answer_of(ports.tribbler, json.dumps(asked).encode(), b"}\n")


async def put_large(ports: Ports) -> None:
    """The value that Tribbler's clients ask for."""
    value = {"Key": "large", "Value": "x" * LARGE}
    asked = {"method": "StorageRPC.Put", "params": [value], "id": 1}
    await answer_of(ports.tribbler, json.dumps(asked).encode(), b"}\n")


async def subscribe_zeromq(ports: Ports) -> None:
    asked = GREETING + ZMTP_READY + encode([b"", b"s", b"ann", b"large"])
    await answer_of(ports.zeromq, asked, b"\x01a")


@dataclass(frozen=True, slots=True)
class Kind:
    """Clients of one kind: what each of them asks for, and what a client of the same door does that reads."""

    door: str
    asks: Callable[[int], bytes]
    reads: Callable[[Ports], Awaitable[None]]


KINDS = {
    "native": Kind("telesto", native_fetch, read_native),
    "telesto": Kind("telesto", telesto, read_telesto),
    "stomp": Kind("stomp", stomp_frames, read_stomp),
    "zeromq": Kind("zeromq", zeromq, read_zeromq),
    "http raw": Kind("http", http_raw, read_http),
    "http json": Kind("http", http_json, read_http),
    "http events": Kind("http", http_events, read_events),
    "websocket": Kind("http", websocket, read_websocket),
    "tribbler": Kind("tribbler", tribbler, read_tribbler),
}


class Crowd:
    """Connections that send and never read."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    async def send(self, port: int, count: int, asks: Callable[[int], bytes]) -> None:
        loop = asyncio.get_running_loop()
        for number in range(count):
            made = await _connect(port)
            self._sockets.append(made)
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(5):
                    first, _, rest = asks(number).partition(AFTER_AN_ANSWER)
                    await loop.sock_sendall(made, first)
                    if rest:
                        await loop.sock_recv(made, 4096)
                        await loop.sock_sendall(made, rest)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for each in self._sockets:
            each.close()
