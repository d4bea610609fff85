"""Load clients of the ZeroMQ door: REQ sockets, one request at a time each, in the authors' text form.

They run in a separate process: `python -m nuncius.bench.load.zeromq NAME URL SECONDS` prints its figures as
JSON.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable

import zmq

from nuncius.bench.limits import BODY

CLIENTS = 64
READ = 4000  # messages that each subscriber reads
TEXT = BODY[32:127] + BODY[32:37]  # a hundred bytes that are text


class ReqClients:
    """REQ sockets that each send the next request when the last one is answered."""

    def __init__(self, url: str, count: int) -> None:
        self._context = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []
        self._poller = zmq.Poller()
        for _ in range(count):
            client = self._context.socket(zmq.REQ)
            client.linger = 0
            client.connect(url)
            self._sockets.append(client)
            self._poller.register(client, zmq.POLLIN)

    def run(self, ask: Callable[[int], bytes | None], seconds: float = 3600.0) -> float:
        """Return answers per second. `ask` returns a client's next request, None when it has finished."""
        numbers = {client: n for n, client in enumerate(self._sockets)}
        start = time.perf_counter()
        end = start + seconds
        answers = busy = 0
        for client, number in numbers.items():
            request = ask(number)
            if request is not None:
                client.send(request)
                busy += 1
        while busy:
            for client, _ in self._poller.poll():
                answer = client.recv()
                if not answer.startswith(b"a"):
                    raise RuntimeError(f"an answer {answer[:80]!r} that should not be")
                answers += 1
                request = ask(numbers[client]) if time.perf_counter() < end else None
                if request is None:
                    busy -= 1
                else:
                    client.send(request)
        return answers / (time.perf_counter() - start)

    def close(self) -> None:
        self._context.destroy(linger=0)


def new_topic() -> bytes:
    return b"bench-%d" % time.time_ns()


class Puts:
    """The put requests of all clients. Each client is a separate publisher."""

    def __init__(self, topic: bytes, most: int = sys.maxsize) -> None:
        self._topic = topic
        self._most = most
        self._counts = [0] * CLIENTS

    def __call__(self, number: int) -> bytes | None:
        self._counts[number] += 1
        count = self._counts[number]
        return None if count > self._most else b"p %d %b %d %b" % (number, self._topic, count, TEXT)


def put(url: str, seconds: float) -> dict[str, float]:
    clients, puts = ReqClients(url, CLIENTS), Puts(new_topic())
    clients.run(puts, seconds / 4)  # warm up
    # Every request was answered: none is under way.
    rate = clients.run(puts, seconds)
    clients.close()
    return {f"put_{CLIENTS}": rate}


def get(url: str, seconds: float) -> dict[str, float]:
    """Let subscribers read the messages that were put after they subscribed."""
    clients, topic = ReqClients(url, CLIENTS), new_topic()
    subscriptions = {n: b"s %d %b" % (n, topic) for n in range(CLIENTS)}
    clients.run(lambda n: subscriptions.pop(n, None))
    clients.run(Puts(topic, READ // CLIENTS))
    available = READ // CLIENTS * CLIENTS
    read = [0] * CLIENTS

    def ask(number: int) -> bytes | None:
        if read[number] == available:
            return None
        read[number] += 1
        return b"g %d %b %d" % (number, topic, read[number] - 1)

    rate = clients.run(ask, seconds)
    clients.close()
    return {f"get_{CLIENTS}": rate}


def roundtrip(url: str, seconds: float) -> dict[str, float]:
    """Measure the time from a put to its answer, with one client."""
    client, puts = ReqClients(url, 1), Puts(new_topic())
    took: list[float] = []
    last = time.perf_counter()

    def ask(number: int) -> bytes | None:
        nonlocal last
        now = time.perf_counter()
        took.append(now - last)
        last = now
        return puts(number)

    client.run(ask, seconds)
    client.close()
    cuts = statistics.quantiles(took[len(took) // 10 :], n=100)
    return {"roundtrip_ms_p50": cuts[49] * 1000, "roundtrip_ms_p99": cuts[98] * 1000}


LOADS = {"put": put, "get": get, "roundtrip": roundtrip}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(LOADS[sys.argv[1]](sys.argv[2], float(sys.argv[3]))))
