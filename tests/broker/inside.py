"""Looks into a broker, for tests that have to know when somebody waits."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nuncius.broker import Broker
from nuncius.broker.model import Letter, Message
from nuncius.broker.topics.topic import Publisher
from nuncius.store.calls.taking import TakeCall
from nuncius.store.driver import Connection
from racing import until

LAST, NONE = 2_000_000_001, 2_000_000_002  # topics that do not exist


def waiting(broker: Broker, queue_id: int) -> int:
    """How many readers of a queue have looked, found nothing, and wait."""
    room = broker.queues._room  # noqa: SLF001
    return sum(waiter.is_idle for waiter in room._waiters.get(queue_id, ()))  # noqa: SLF001


async def until_waiting_for(broker: Broker, queue_id: int, count: int = 1) -> None:
    await until(lambda: waiting(broker, queue_id) == count)


def readers(broker: Broker) -> int:
    """How many readers of topics wait."""
    calls = [call for calls in broker.signals._watching.values() for call in calls]  # noqa: SLF001
    return sum(bool(getattr(call.__self__, "_waiters", None)) for call in calls)  # type: ignore[attr-defined]


async def until_nodes(count: int, *brokers: Broker) -> None:
    """Returns when all of these brokers know that there are so many nodes."""
    await until(lambda: all(broker._listener.nodes == count for broker in brokers))  # noqa: SLF001


async def until_heard(broker: Broker, connection: Connection) -> None:
    """Returns when the broker has heard all that was committed so far: news come in the order of commits."""
    signals = broker.signals
    before = signals.version(LAST) - signals.version(NONE)
    await connection.execute("select pg_notify('nuncius', $1)", f"t{LAST}")
    await until(lambda: signals.version(LAST) - signals.version(NONE) > before)


def gate_takes(broker: Broker) -> asyncio.Event:
    """Holds the results of takes back, after PostgreSQL has answered, until the event is set."""
    combiner = broker.queues._room._taking  # noqa: SLF001
    carry_out: Callable[..., Awaitable[Sequence[Any]]] = combiner._execute  # noqa: SLF001
    gate = asyncio.Event()

    async def gated(*arguments: Any) -> Sequence[Any]:
        results = await carry_out(*arguments)
        await gate.wait()
        return results

    combiner._execute = gated  # noqa: SLF001
    return gate


def count_looks(broker: Broker) -> Callable[[], int]:
    """Counts from now on how often somebody looks into a queue on the lane of the puts."""
    combiner = broker.queues._room._taking  # noqa: SLF001
    submit = combiner.submit
    looks = 0

    def counted(call: Any) -> None:
        nonlocal looks
        looks += type(call) is TakeCall
        submit(call)

    combiner.submit = counted  # type: ignore[method-assign]
    return lambda: looks


async def put_beside(broker: Broker, queue_id: int, body: bytes) -> None:
    """Puts a message by another way than the one on which takes are carried out."""
    await broker.queues.put_into_all([queue_id], Letter(body))


async def queue(broker: Broker, name: str = "jobs") -> int:
    return (await broker.queues.create(name)).queue_id


async def put(
    broker: Broker,
    queue_id: int,
    *letters: Letter | bytes,
    publisher: Publisher | None = None,
    count: int = 0,
) -> Any:
    """Puts messages and waits until they are stored."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    broker.queues.put_soon(
        queue_id,
        [Letter(each) if isinstance(each, bytes) else each for each in letters],
        future.set_result,
        publisher=publisher,
        count=count,
    )
    result = await future
    if isinstance(result, Exception):
        raise result
    return result


def bodies(messages: Sequence[Message]) -> list[bytes]:
    return [message.body for message in messages]


def start(work: Awaitable[Any]) -> "asyncio.Future[Any]":
    return asyncio.ensure_future(work)


async def everything(broker: Broker, topic: str, partition: int = 1) -> list[bytes]:
    """All bodies of a partition, in order."""
    found: list[bytes] = []
    known = await broker.topics.existing(topic)
    position = 0
    while entries := await broker.topics.fetch(known, partition, position, 1000):
        found += entries.bodies
        position = entries.next_offset
    return found
