"""Every way to publish a message, and every way to read it. A way is one class with one method."""

import base64
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import ClassVar

from doors.matrix.bodies import ANY_BYTES, ANY_TEXT, PLAIN_TEXT, exact, replaced, without_nuls
from doors.matrix.house import House

Render = Callable[[bytes], bytes]
TOPIC = "matrix"


class Writer(ABC):
    carries: ClassVar[Mapping[str, bytes]]
    """The bodies that this protocol can express."""

    @abstractmethod
    async def write(self, house: House, bodies: list[bytes]) -> None: ...


class Reader(ABC):
    renders: ClassVar[Render]
    """How this protocol shows a body."""

    @abstractmethod
    def bodies(self, house: House) -> AsyncGenerator[bytes, None]:
        """Subscribe at the first step, which yields nothing of interest; then yield every body."""


class WriteNative(Writer):
    carries = ANY_BYTES

    async def write(self, house: House, bodies: list[bytes]) -> None:
        await house.native.publish(TOPIC, bodies[0])
        await house.native.publish_batch(TOPIC, bodies[1:])


class WriteSql(Writer):
    carries = ANY_BYTES

    async def write(self, house: House, bodies: list[bytes]) -> None:
        for body in bodies:
            await house.sql.fetchval("select nuncius.publish($1, $2::bytea)", TOPIC, body)


class WriteStomp(Writer):
    carries = ANY_BYTES

    async def write(self, house: House, bodies: list[bytes]) -> None:
        peer = await house.stomp_peer()
        for body in bodies:
            await peer.ask("SEND", body, destination=f"/topic/{TOPIC}", content_length=str(len(body)))


class WriteSlimStomp(Writer):
    carries = PLAIN_TEXT

    async def write(self, house: House, bodies: list[bytes]) -> None:
        peer = await house.slim_peer()
        for body in bodies:
            peer.write(b"SEND\ntopic:" + TOPIC.encode() + b"\n\n" + body + b"\n\n\0")
        peer.write(b"DISCONNECT\n\n\0")
        assert await peer.read(10) == b"RECEIPT\n\n\0"


class WriteZeromq(Writer):
    carries = ANY_TEXT

    async def write(self, house: House, bodies: list[bytes]) -> None:
        peer = await house.zeromq_peer()
        for body in bodies:
            count = house.next_count("single")
            answer = await peer.ask(f"p single {TOPIC} {count} {body.decode()}")
            assert answer.startswith("a "), answer


class WriteZeromqFields(Writer):
    carries = ANY_BYTES

    async def write(self, house: House, bodies: list[bytes]) -> None:
        peer = await house.zeromq_peer()
        for body in bodies:
            count = str(house.next_count("fields"))
            status, _ = await peer.ask_fields("p", "fields", TOPIC, count, body)
            assert status == b"a"


class WriteQueueReport(Writer):
    carries = ANY_TEXT

    async def write(self, house: House, bodies: list[bytes]) -> None:
        registered = await house.call("POST", "/producer/register", {"topic": TOPIC})
        sent = {"topic": TOPIC, "producer_id": registered["producer_id"]}
        for body in bodies:
            await house.call("POST", "/producer/produce", {**sent, "message": body.decode()})


class WriteHttp(Writer):
    carries = ANY_BYTES

    async def write(self, house: House, bodies: list[bytes]) -> None:
        messages = [{"body": base64.b64encode(body).decode(), "encoding": "base64"} for body in bodies]
        await house.call("POST", f"/v1/topics/{TOPIC}/messages", messages[0])
        await house.call("POST", f"/v1/topics/{TOPIC}/messages/batch", {"messages": messages[1:]})


class WriteHttpRaw(Writer):
    carries = ANY_BYTES

    async def write(self, house: House, bodies: list[bytes]) -> None:
        for body in bodies:
            await house.call("POST", f"/v1/topics/{TOPIC}/messages/raw", body)


class ReadNative(Reader):
    renders = exact

    async def bodies(self, house: House) -> AsyncGenerator[bytes, None]:
        subscription = await house.native.subscribe(TOPIC, "native", start="earliest")
        yield b""
        async for message in subscription:
            yield message.body


class ReadSql(Reader):
    renders = exact

    async def bodies(self, house: House) -> AsyncGenerator[bytes, None]:
        yield b""
        for row in await house.sql.fetch("select body from nuncius.fetch($1)", TOPIC):
            yield row["body"]


class ReadStomp(Reader):
    renders = exact

    async def bodies(self, house: House) -> AsyncGenerator[bytes, None]:
        peer = await house.stomp_peer()
        await peer.subscribe(f"/topic/{TOPIC}")
        yield b""
        while True:
            yield (await peer.expect("MESSAGE")).body


class ReadSlimStomp(Reader):
    renders = without_nuls

    async def bodies(self, house: House) -> AsyncGenerator[bytes, None]:
        peer = await house.slim_peer()
        peer.write(b"SUBSCRIBE\ndestination:" + TOPIC.encode() + b"\n\n\0")
        peer.write(b"SEND\ntopic:of no one\n\n\n\n\0")  # its refusal tells that the subscription stands
        assert await peer.read(37) == b"ERROR\nmessage:Failed to add message\n\n\0"[:37]
        assert await peer.read(1) == b"\0"
        yield b""
        head = b"MESSAGE\ndestination:" + TOPIC.encode() + b"\n\n"
        while True:
            frame = await peer.read_through(b"\0")
            assert frame.startswith(head)
            yield frame.removeprefix(head).removesuffix(b"\n\n\0")


class ReadZeromq(Reader):
    renders = replaced

    async def bodies(self, house: House) -> AsyncGenerator[bytes, None]:
        peer = await house.zeromq_peer()
        assert await peer.ask(f"s single {TOPIC}") == "a -1"
        yield b""
        number = 0
        while True:
            status, _, body = (await peer.ask(f"g single {TOPIC} {number} wait=30")).split(" ", 2)
            assert status == "a"
            yield body.encode()
            number += 1


class ReadZeromqFields(Reader):
    renders = exact

    async def bodies(self, house: House) -> AsyncGenerator[bytes, None]:
        peer = await house.zeromq_peer()
        assert await peer.ask_fields("s", "fields", TOPIC) == [b"a", b"-1"]
        yield b""
        number = 0
        while True:
            status, _, body = await peer.ask_fields("g", "fields", TOPIC, str(number), "wait=30")
            assert status == b"a"
            yield body
            number += 1


class ReadQueueReport(Reader):
    renders = replaced

    async def bodies(self, house: House) -> AsyncGenerator[bytes, None]:
        registered = await house.call("POST", "/consumer/register", {"topic": TOPIC})
        path = f"/consumer/consume?topic={TOPIC}&consumer_id={registered['consumer_id']}"
        yield b""
        while True:
            yield (await house.call("GET", path))["message"].encode()


class ReadHttp(Reader):
    renders = exact

    async def bodies(self, house: House) -> AsyncGenerator[bytes, None]:
        path = f"/v1/topics/{TOPIC}/subscriptions"
        await house.call("POST", path, {"name": "http", "start": "earliest"})
        yield b""
        place = 0
        while True:
            for message in (await house.call("GET", f"{path}/http/messages?wait=30"))["messages"]:
                place = message["offset"] + 1
                yield from_json(message)
            moved = {"positions": [{"partition": 1, "position": place}]}
            await house.call("POST", f"{path}/http/confirm", moved)


class ReadHttpRaw(Reader):
    renders = exact

    async def bodies(self, house: House) -> AsyncGenerator[bytes, None]:
        yield b""
        offset = 0
        while True:
            yield await house.call("GET", f"/v1/topics/{TOPIC}/partitions/1/messages/{offset}/raw")
            offset += 1


def from_json(message: Mapping[str, str]) -> bytes:
    """Decode the body of a message of the HTTP API."""
    if message.get("encoding") == "base64":
        return base64.b64decode(message["body"])
    return message["body"].encode()


WRITERS: list[type[Writer]] = [
    WriteNative,
    WriteSql,
    WriteStomp,
    WriteSlimStomp,
    WriteZeromq,
    WriteZeromqFields,
    WriteQueueReport,
    WriteHttp,
    WriteHttpRaw,
]
READERS: list[type[Reader]] = [
    ReadNative,
    ReadSql,
    ReadStomp,
    ReadSlimStomp,
    ReadZeromq,
    ReadZeromqFields,
    ReadQueueReport,
    ReadHttp,
    ReadHttpRaw,
]
