"""Every way to put a message into a queue, and every way to take it out."""

import base64
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import ClassVar

import telesto_peer as telesto
from doors.matrix.bodies import ANY_BYTES, ANY_TEXT, LARGE, exact, replaced
from doors.matrix.house import House
from doors.matrix.topic_ways import from_json
from nuncius.doors.telesto.table import Dialect

SMALL_BYTES = {name: body for name, body in ANY_BYTES.items() if name not in LARGE}
SMALL_TEXT = {name: body for name, body in ANY_TEXT.items() if name not in LARGE}


class Putter(ABC):
    carries: ClassVar[Mapping[str, bytes]]

    @abstractmethod
    async def put(self, house: House, queue: str, queue_id: int, bodies: list[bytes]) -> None: ...


class Taker(ABC):
    renders: ClassVar[Callable[[bytes], bytes]]

    @abstractmethod
    def bodies(self, house: House, queue: str, queue_id: int) -> AsyncGenerator[bytes, None]: ...


class PutNative(Putter):
    carries = SMALL_BYTES

    async def put(self, house: House, queue: str, queue_id: int, bodies: list[bytes]) -> None:
        await house.native.put(queue, bodies[0])
        await house.native.put_batch(queue, bodies[1:])


class PutSql(Putter):
    carries = SMALL_BYTES

    async def put(self, house: House, queue: str, queue_id: int, bodies: list[bytes]) -> None:
        for body in bodies:
            call = "select nuncius.put_message($1, 0, 0, 0, 5, $2::bytea)"
            assert await house.sql.fetchval(call, queue_id, body) == queue_id


class PutStomp(Putter):
    carries = SMALL_BYTES

    async def put(self, house: House, queue: str, queue_id: int, bodies: list[bytes]) -> None:
        peer = await house.stomp_peer()
        for body in bodies:
            await peer.ask("SEND", body, destination=f"/queue/{queue}", content_length=str(len(body)))


class PutHttp(Putter):
    carries = SMALL_BYTES

    async def put(self, house: House, queue: str, queue_id: int, bodies: list[bytes]) -> None:
        messages = [{"body": base64.b64encode(body).decode(), "encoding": "base64"} for body in bodies]
        await house.call("POST", f"/v1/queues/{queue}/messages", messages[0])
        await house.call("POST", f"/v1/queues/{queue}/messages/batch", {"messages": messages[1:]})


class PutHttpRaw(Putter):
    carries = SMALL_BYTES

    async def put(self, house: House, queue: str, queue_id: int, bodies: list[bytes]) -> None:
        for body in bodies:
            await house.call("POST", f"/v1/queues/{queue}/messages/raw", body)


class PutTelesto(Putter):
    carries = SMALL_TEXT
    dialect = Dialect.DEPLOYED

    async def put(self, house: House, queue: str, queue_id: int, bodies: list[bytes]) -> None:
        peer = await telesto_client(house, self.dialect, f"putter of {queue}")
        for body in bodies:
            await peer.put(queue_id, body.decode())


class PutTelestoReport(PutTelesto):
    dialect = Dialect.REPORT


class TakeNative(Taker):
    renders = exact

    async def bodies(self, house: House, queue: str, queue_id: int) -> AsyncGenerator[bytes, None]:
        while True:
            message = await house.native.take(queue, wait=20)
            assert message is not None
            yield message.body


class LeaseNative(Taker):
    renders = exact

    async def bodies(self, house: House, queue: str, queue_id: int) -> AsyncGenerator[bytes, None]:
        while True:
            lease = await house.native.lease(queue, wait=20)
            assert lease is not None
            async with lease:
                yield lease.message.body


class TakeSql(Taker):
    renders = exact

    async def bodies(self, house: House, queue: str, queue_id: int) -> AsyncGenerator[bytes, None]:
        while True:
            call = "select message from nuncius.read_message_by_priority($1, 0, 0)"
            yield await house.sql.fetchval(call, queue_id)


class TakeStomp(Taker):
    renders = exact

    async def bodies(self, house: House, queue: str, queue_id: int) -> AsyncGenerator[bytes, None]:
        peer = await house.stomp_peer()
        await peer.subscribe(f"/queue/{queue}")
        while True:
            yield (await peer.expect("MESSAGE")).body


class LeaseStomp(Taker):
    renders = exact

    async def bodies(self, house: House, queue: str, queue_id: int) -> AsyncGenerator[bytes, None]:
        peer = await house.stomp_peer()
        await peer.subscribe(f"/queue/{queue}", ack="client-individual")
        while True:
            message = await peer.expect("MESSAGE")
            await peer.ask("ACK", id=message.headers["ack"])
            yield message.body


class TakeTelesto(Taker):
    renders = replaced
    dialect = Dialect.DEPLOYED

    async def bodies(self, house: House, queue: str, queue_id: int) -> AsyncGenerator[bytes, None]:
        peer = await telesto_client(house, self.dialect, f"taker of {queue}")
        while True:
            yield (await peer.take(queue_id)).text.encode()


class TakeTelestoReport(TakeTelesto):
    dialect = Dialect.REPORT


class TakeHttp(Taker):
    renders = exact

    async def bodies(self, house: House, queue: str, queue_id: int) -> AsyncGenerator[bytes, None]:
        while True:
            for message in (await house.call("POST", f"/v1/queues/{queue}/take", {"limit": 3}))["messages"]:
                yield from_json(message)


class LeaseHttp(Taker):
    renders = exact

    async def bodies(self, house: House, queue: str, queue_id: int) -> AsyncGenerator[bytes, None]:
        path = f"/v1/queues/{queue}"
        while True:
            for message in (await house.call("POST", f"{path}/lease", {"limit": 3}))["messages"]:
                await house.call("POST", f"{path}/settle", {"leases": [message["lease"]]})
                yield from_json(message)


async def telesto_client(house: House, dialect: Dialect, name: str) -> telesto.Peer:
    node = telesto.Node(house.broker, house.telesto, house.telesto_port)
    return await house.closing.enter_async_context(telesto.connected(node, dialect, name))


PUTTERS: list[type[Putter]] = [
    PutNative,
    PutSql,
    PutStomp,
    PutHttp,
    PutHttpRaw,
    PutTelesto,
    PutTelestoReport,
]
TAKERS: list[type[Taker]] = [
    TakeNative,
    LeaseNative,
    TakeSql,
    TakeStomp,
    LeaseStomp,
    TakeTelesto,
    TakeTelestoReport,
    TakeHttp,
    LeaseHttp,
]
