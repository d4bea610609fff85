"""Every way to lease messages, behind one interface, so that the contract of leases is written once."""

import json
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar

import asyncpg

from broker.acknowledging import lease_one
from broker.inside import put
from doors.http.peer import Node as HttpNode
from doors.stomp.peer import Node as StompNode
from doors.stomp.peer import Peer, connected
from native_peer import NativePeer, open_door, open_peer
from nuncius.broker import Broker
from nuncius.broker.model import Leased, Letter
from nuncius.client import AsyncClient
from nuncius.doors.http.door import HttpDoor
from nuncius.doors.stomp.door import StompDoor
from nuncius.node.shared_port import TelestoDoor
from nuncius.store.driver import Connection
from nuncius.wire import packets
from racing import until
from store.lease_sql import lease_many
from store.queue_sql import Ask

LONG = 3600  # seconds that a timed lease lasts
WAIT = 60  # seconds that a consumer waits for a message


@dataclass
class World:
    """A queue "jobs", the two nodes at which its consumers are, and a look into the store."""

    dsn: str
    nodes: tuple[Broker, Broker]
    queue_id: int
    connection: Connection
    closing: AsyncExitStack

    async def put(self, *letters: Letter | bytes) -> None:
        await put(self.nodes[0], self.queue_id, *letters)

    async def ready(self) -> list[bytes]:
        """The bodies that a consumer could get now, in no order."""
        rows = await self.connection.fetch("select message from nuncius.messages")
        return [row["message"] for row in rows]

    async def in_hand(self) -> int:
        """How many messages consumers have, and how many wait for their next attempt."""
        count: int = await self.connection.fetchval("select count(*) from nuncius.leases")
        return count


@dataclass(frozen=True)
class Delivery:
    """A message in a consumer's hands."""

    handle: Any
    """What the surface settles and releases it by."""
    body: bytes
    priority: int
    attempts: int
    origin: object
    """What names the message over all its deliveries."""
    headers: dict[str, str] = field(default_factory=dict)


class Consumer(ABC):
    """A consumer of the queue "jobs" at one of the nodes."""

    waits: ClassVar[bool] = True
    """Whether the node knows of a consumer that waits. Calls of SQL do not wait: they are repeated."""
    knows_leaving: ClassVar[bool] = True
    """Whether a consumer's end is noticed: in process and in SQL it is the end of its node."""

    def __init__(self, world: World, at: int) -> None:
        self.world = world
        self.node = world.nodes[at]
        self.queue_id = world.queue_id

    async def open(self) -> None:  # noqa: B027  (a consumer in process has nothing to open)
        """Connect."""

    @abstractmethod
    async def next(self) -> Delivery:
        """The next message, waited for."""

    @abstractmethod
    async def settle(self, one: Delivery) -> None: ...

    @abstractmethod
    async def release(self, one: Delivery, reason: str | None = None) -> None:
        """Give a message back: with a reason as a failed attempt."""

    async def leave(self) -> None:
        """End without a word; a timed lease then ends by its time."""
        query = "update nuncius.leases set due_at = now() where holder = -1"
        await self.world.connection.execute(query)


class Procedures(Consumer):
    """The procedures that nodes call."""

    waits = knows_leaving = False
    sql: Connection

    async def open(self) -> None:
        self.sql = await asyncpg.connect(self.world.dsn)
        self.world.closing.push_async_callback(self.sql.close)

    async def next(self) -> Delivery:
        holder = self.node._listener.holder  # noqa: SLF001
        (row,) = await until(lambda: lease_many(self.sql, Ask(self.queue_id), holder=holder), WAIT)
        return of_row(row, row["message_id"], row["message"], row["origin"])

    async def settle(self, one: Delivery) -> None:
        assert await self._call("settle_many($1)", [one.handle]) == [one.handle]

    async def release(self, one: Delivery, reason: str | None = None) -> None:
        limits = self.node.limits
        arguments = [one.handle], [reason], limits.retry_delay, limits.max_attempts
        await self._call("release_many($1, $2, $3, $4)", *arguments)

    async def _call(self, call: str, *arguments: object) -> Any:
        return await self.sql.fetchval(f"select nuncius.{call}", *arguments)


class Workers(Procedures):
    """The calls of workers in SQL: they name no node."""

    knows_leaving = True

    async def next(self) -> Delivery:
        query = "select * from nuncius.lease('jobs', seconds => $1, max_attempts => $2)"
        most = self.node.limits.max_attempts
        (row,) = await until(lambda: self.sql.fetch(query, float(LONG), most), WAIT)
        return of_row(row, row["lease_id"], row["body"], None)

    async def settle(self, one: Delivery) -> None:
        assert await self._call("settle('jobs', $1)", [one.handle]) == 1

    async def release(self, one: Delivery, reason: str | None = None) -> None:
        limits = self.node.limits
        ids = [one.handle]
        if reason is None:
            assert await self._call("release('jobs', $1)", ids) == 1
        else:
            call = "release('jobs', $1, $2, delay => $3, max_attempts => $4)"
            assert await self._call(call, ids, reason, limits.retry_delay, limits.max_attempts) == 1


class InProcess(Consumer):
    """The broker's own interface, as listeners use it."""

    knows_leaving = False

    async def next(self) -> Delivery:
        return of_leased(await lease_one(self.node, self.queue_id))

    async def settle(self, one: Delivery) -> None:
        await self.node.leases.settle([one.handle])

    async def release(self, one: Delivery, reason: str | None = None) -> None:
        await self.node.leases.release([one.handle], reason=reason)


class Timed(Consumer):
    """The broker's leases for a time."""

    async def next(self) -> Delivery:
        (one,) = await self.node.timed_leases.lease(self.queue_id, seconds=LONG, wait=WAIT)
        return of_leased(one)

    async def settle(self, one: Delivery) -> None:
        await self.node.timed_leases.settle(self.queue_id, [one.handle])

    async def release(self, one: Delivery, reason: str | None = None) -> None:
        await self.node.timed_leases.release(self.queue_id, [one.handle], reason=reason)


class Http(Consumer):
    """The API under /v1, with a connection for every request."""

    http: HttpNode

    async def open(self) -> None:
        door = HttpDoor(self.node)
        self.world.closing.push_async_callback(door.close)
        self.http = HttpNode(self.node, door, await door.open("127.0.0.1", 0))

    async def next(self) -> Delivery:
        answer = await self.http.post("/v1/queues/jobs/lease", {"wait": WAIT, "seconds": LONG})
        (one,) = answer.json["messages"]
        body, headers = one["body"].encode(), one.get("headers", {})
        return Delivery(one["lease"], body, one["priority"], one["attempts"], one["origin"], headers)

    async def settle(self, one: Delivery) -> None:
        await self._say("settle", {"leases": [one.handle]})

    async def release(self, one: Delivery, reason: str | None = None) -> None:
        await self._say("release", {"leases": [one.handle]} | ({"reason": reason} if reason else {}))

    async def _say(self, verb: str, request: dict[str, object]) -> None:
        assert (await self.http.post(f"/v1/queues/jobs/{verb}", request)).status == 204


class Native(Consumer):
    """The native protocol, packet by packet."""

    door: TelestoDoor
    peer: NativePeer

    async def open(self) -> None:
        self.door, port = await self.world.closing.enter_async_context(open_door(self.node))
        self.peer = await open_peer(port)
        self.world.closing.push_async_callback(self.peer.close)
        await self.peer.hello()

    async def next(self) -> Delivery:
        (one,) = (await self.peer.ask(packets.Lease, "jobs", 1, WAIT * 1000)).messages
        message = one.message
        headers = json.loads(message.headers or "{}")
        return Delivery(one.lease, message.body, message.priority, one.attempts, one.origin, headers)

    async def settle(self, one: Delivery) -> None:
        assert isinstance(await self.peer.ask(packets.Settle, [one.handle]), packets.Done)

    async def release(self, one: Delivery, reason: str | None = None) -> None:
        assert isinstance(await self.peer.ask(packets.Release, [one.handle], reason), packets.Done)

    async def leave(self) -> None:
        await self.peer.close()
        await until(lambda: self.door.connections == 0)


class Client(Consumer):
    """The Python client."""

    client: AsyncClient

    async def open(self) -> None:
        _, port = await self.world.closing.enter_async_context(open_door(self.node))
        client = AsyncClient(f"nuncius://127.0.0.1:{port}", timeout=WAIT)
        self.client = await self.world.closing.enter_async_context(client)

    async def next(self) -> Delivery:
        one = await self.client.lease("jobs", wait=WAIT)
        assert one is not None
        message = one.message
        return Delivery(one, message.body, message.priority, one.attempts, one.origin, message.headers)

    async def settle(self, one: Delivery) -> None:
        await one.handle.settle()

    async def release(self, one: Delivery, reason: str | None = None) -> None:
        await one.handle.release(reason)

    async def leave(self) -> None:
        await self.client.close()


class Stomp(Consumer):
    """A subscription to the queue over STOMP, with at most one message in hand."""

    door: StompDoor
    peer: Peer
    subscription = 0
    subscribed = False

    async def open(self) -> None:
        self.door = StompDoor(self.node)
        self.world.closing.push_async_callback(self.door.close)
        node = StompNode(self.node, self.door, await self.door.open("127.0.0.1", 0), native_port=0)
        self.peer = await self.world.closing.enter_async_context(connected(node))

    async def next(self) -> Delivery:
        if not self.subscribed:
            self.subscribed = True
            self.subscription += 1
            own = {"id": str(self.subscription), "ack": "client-individual", "prefetch_count": "1"}
            await self.peer.subscribe("/queue/jobs", **own)
        (one,) = await self.peer.messages(1)
        while one.headers["subscription"] != str(self.subscription):  # given back by UNSUBSCRIBE
            (one,) = await self.peer.messages(1)
        headers = dict(one.headers)
        priority, attempts = int(headers["priority"]) + 1, int(headers.get("attempt", 1)) - 1
        assert "redelivered" in headers or attempts == 0
        return Delivery(headers["ack"], one.body, priority, attempts, headers["message-id"], headers)

    async def settle(self, one: Delivery) -> None:
        await self.peer.ask("ACK", id=one.handle)

    async def release(self, one: Delivery, reason: str | None = None) -> None:
        """A subscription gives back what it has when it ends, and gets what failed again unless it ends."""
        if reason is not None:
            await self.peer.ask("NACK", id=one.handle, reason=reason)
        await self.peer.ask("UNSUBSCRIBE", id=str(self.subscription))
        self.subscribed = False

    async def leave(self) -> None:
        await self.peer.close()
        await until(lambda: self.door.connections == 0)


def of_row(row: asyncpg.Record, handle: int, body: bytes, origin: int | None) -> Delivery:
    headers = json.loads(row["headers"] or "{}")
    return Delivery(handle, body, row["priority"], row["attempts"], origin, headers)


def of_leased(one: Leased) -> Delivery:
    message = one.message
    headers = json.loads(message.headers or "{}")
    return Delivery(one.lease_id, message.body, message.priority, one.attempts, one.origin, headers)


SURFACES: list[type[Consumer]] = [Procedures, Workers, InProcess, Timed, Http, Native, Client, Stomp]
