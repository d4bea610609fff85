"""The load of the Telesto authors' evaluation: synchronous clients, one connection each.

`python -m nuncius.bench.load.telesto SETTINGS` (JSON) runs it and prints its figures. Three kinds of clients
share the load, as the authors' programs do: a one-way client sends a message to a random other one and waits
for a message to itself; in a pair, one client sends requests to the other; in the service, one half sends
requests to a queue, from which any client of the other half takes them. A client sends one request at a time
and waits for the answer. Every message has a unique text, and at the end each must have been read once.
"""

import asyncio
import itertools
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec
import uvloop

from nuncius.bench.trace import ClientTrace
from nuncius.doors.telesto import table
from nuncius.doors.telesto.codec import Codec
from nuncius.doors.telesto.table import Answer, Dialect, ErrorType, ReadMode, Request

ONE_WAY, PAIR, SERVICE = 5, 2, 2  # ninths of all clients
RETRY_SECONDS = 0.050  # the delay of the authors' client between two reads


class LoadSettings(msgspec.Struct, frozen=True):
    """The settings of a load. Clients are spread over the nodes at `addresses`."""

    addresses: list[tuple[str, int]]
    clients: int
    seconds: float
    trace: str = ""
    text: int = 100


class Outcome(msgspec.Struct):
    messages: int
    packets: int
    seconds: float
    response_mean_ms: float
    response_p50_ms: float
    response_p99_ms: float
    lost: int
    doubled: int

    @classmethod
    def of(cls, messages: int, seconds: float, took_ns: Sequence[int], lost: int, doubled: int) -> "Outcome":
        cuts = [cut / 1e6 for cut in statistics.quantiles(took_ns, n=100)]
        mean = statistics.fmean(took_ns) / 1e6
        return cls(messages, len(took_ns), seconds, mean, cuts[49], cuts[98], lost, doubled)


class ErrorAnswer(Exception):
    def __init__(self, packet: table.Error) -> None:
        super().__init__(packet.details)
        self.error_type = packet.error_type


class LoadClient(asyncio.Protocol):
    """One client's connection. It sends one request at a time, as the authors' client does."""

    def __init__(self, run: "TelestoLoad") -> None:
        self._run = run
        self._codec = Codec(Dialect.DEPLOYED, Answer)
        self._ids = itertools.count(1)
        self._answer: asyncio.Future[Answer] | None = None
        self._answered = 0  # time of the last answer, by perf_counter_ns; 0 before the first one

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        for packet in self._codec.receive(data):
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(packet)  # type: ignore[arg-type]

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the node closed the connection"))

    async def ask(self, kind: type[Request], *fields: Any) -> Any:
        self._answer = self._loop.create_future()
        start = time.perf_counter_ns()
        waiting = start - (self._answered or start)
        self._transport.write(self._codec.encode(kind(next(self._ids), *fields)))
        answer = await self._answer
        self._answered = time.perf_counter_ns()
        self._run.asked(kind, answer, start, waiting, self._answered - start)
        if isinstance(answer, table.Error):
            raise ErrorAnswer(answer)
        return answer

    async def put(self, queue: int, text: str, receiver: int = 0, context: int = 0) -> None:
        message = table.Message(0, queue, 0, receiver, context, 5, 0, text)
        await self.ask(table.PutMessage, message, [])

    async def read(self, kind: type[Request], *fields: Any) -> table.Message | None:
        """Repeat a read until there is a message or the run is over."""
        while True:
            try:
                answer = await self.ask(kind, *fields)
                message: table.Message = answer.messages[0]
                return message
            except ErrorAnswer as error:
                if error.error_type != ErrorType.NO_MESSAGES_RETRIEVED:
                    raise
            if self._run.drained:
                return None
            await asyncio.sleep(RETRY_SECONDS)

    def close(self) -> None:
        self._transport.close()


class TelestoLoad:
    def __init__(self, settings: LoadSettings) -> None:
        self._settings = settings
        self._trace = ClientTrace(settings.trace) if settings.trace else None
        self._connections: list[LoadClient] = []
        self._responses: list[int] = []
        self._put: Counter[str] = Counter()
        self._read: Counter[str] = Counter()
        self._texts = itertools.count()
        self._measuring = False
        self._over = False
        self._messages = 0

    @property
    def drained(self) -> bool:
        """Return whether the run is over and all messages have been read."""
        return self._over and self._put.total() == self._read.total()

    def asked(self, kind: type[Request], answer: Any, start: int, waiting: int, took: int) -> None:
        if self._measuring:
            self._responses.append(took)
        if self._trace is not None:
            self._trace.add(start, waiting, kind, took, type(answer))

    async def main(self) -> Outcome:
        workers = await self._connect()
        tasks = [asyncio.ensure_future(worker) for worker in workers]
        await asyncio.sleep(min(1.0, self._settings.seconds / 10))
        self._measuring = True
        before, start = self._read.total(), time.perf_counter()
        await asyncio.sleep(self._settings.seconds)
        messages, seconds = self._read.total() - before, time.perf_counter() - start
        self._measuring = False
        self._over = True
        done, _ = await asyncio.wait(tasks, timeout=30)
        for task in done:
            task.result()
        self.close()
        missing = self._put - self._read
        doubled = sum(times - 1 for times in self._read.values() if times > 1)
        return Outcome.of(messages, seconds, self._responses, missing.total(), doubled)

    def close(self) -> None:
        """Close the connections and complete the trace file."""
        for connection in self._connections:
            connection.close()
        if self._trace is not None:
            self._trace.close()

    async def _connect(self) -> list[Coroutine[Any, Any, None]]:
        stamp = f"{time.time_ns():x}"
        clients = []
        for number in range(self._settings.clients):
            host, port = self._settings.addresses[number % len(self._settings.addresses)]
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(lambda: LoadClient(self), host, port)
            self._connections.append(connection)
            name = f"load-{stamp}-{number}"
            client_id = (await connection.ask(table.RegisterClient, name, 1)).client_id
            clients.append((connection, client_id))
        first = clients[0][0]
        queues = [
            (await first.ask(table.CreateQueue, f"load-{stamp}-{kind}")).queue_id
            for kind in ("one-way", "pair", "service")
        ]
        pairs, services = (len(clients) * share // 9 // 2 * 2 for share in (PAIR, SERVICE))
        one_way = [client_id for _, client_id in clients[pairs + services :]]
        workers = []
        for number, (connection, client_id) in enumerate(clients):
            if number >= pairs + services:
                others = [other for other in one_way if other != client_id]
                work = self._one_way(connection, queues[0], others or [client_id])
            elif number % 2:
                work = self._serve(connection, queues[1 if number < pairs else 2])
            elif number < pairs:
                work = self._request(connection, queues[1], clients[number + 1][1])
            else:
                work = self._request(connection, queues[2], 0)
            workers.append(work)
        return workers

    def _text(self) -> str:
        text = f"{next(self._texts):012d}".ljust(self._settings.text, ".")
        self._put[text] += 1
        return text

    async def _one_way(self, connection: LoadClient, queue: int, others: list[int]) -> None:
        read = table.ReadMessage, queue, 0, ReadMode.TIME
        while not self._over:
            await connection.put(queue, self._text(), random.choice(others))  # noqa: S311  (a lot, no secret)
            if await self._got(connection, *read) is None:
                return
        while await self._got(connection, *read) is not None:
            """Drain the messages that others still sent to this client."""

    async def _request(self, connection: LoadClient, queue: int, receiver: int) -> None:
        context = 0
        while not self._over:
            context += 1
            await connection.put(queue, self._text(), receiver, context)
            if await self._got(connection, table.ReadResponse, queue, context) is None:
                return

    async def _serve(self, connection: LoadClient, queue: int) -> None:
        while not self.drained:
            message = await self._got(connection, table.ReadMessage, queue, 0, ReadMode.TIME)
            if message is None:
                return
            await connection.put(queue, self._text(), message.sender_id, message.context)

    async def _got(self, connection: LoadClient, kind: type[Request], *fields: Any) -> table.Message | None:
        message = await connection.read(kind, *fields)
        if message is not None:
            self._read[message.text] += 1
        return message


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=LoadSettings)
    outcome = uvloop.run(TelestoLoad(settings).main())
    sys.stdout.buffer.write(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
