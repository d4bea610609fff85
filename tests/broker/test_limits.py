"""Whatever comes from outside, the broker answers with an error of its own, and goes on."""

import contextlib
from collections.abc import Awaitable, Callable

import pytest

from broker.inside import everything, put, queue
from nuncius.broker import Broker
from nuncius.broker.errors import BrokerError, CallFailed, InvalidInput, StoreError
from nuncius.broker.limits import Limits, check_headers, check_keys, check_name
from nuncius.broker.model import Letter, Retention

BAD_NAMES = ["", " ", "a\0b", "a\nb", " a", "a ", "x" * 256, "\ud800", "\x7f"]
BEYOND = [2**31, 2**63, 2**64, -1, -(2**63)]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_names(name: str) -> None:
    """Names have 1 to 255 printable characters and no blanks at their ends."""
    with pytest.raises(InvalidInput):
        check_name("queue", name)


async def test_good_names(broker: Broker) -> None:
    """Everything else is a good name, and means the same everywhere."""
    for name in ("a", "é" * 255, "a b", "日本", "a/b.c-d_e:f", "'; drop table x; --"):
        check_name("queue", name)
        assert (await broker.queues.create(name)).name == name
        assert (await broker.queues.find(name)).name == name
        await broker.topics.publish(name, [b"x"])
        assert await everything(broker, name) == [b"x"]


NameCall = Callable[[Broker, str], Awaitable[object]]
BY_NAME: dict[str, NameCall] = {
    "queues.create": lambda b, n: b.queues.create(n),
    "queues.find": lambda b, n: b.queues.find(n),
    "queues.names.find": lambda b, n: b.queues.names.find(n),
    "queues.info": lambda b, n: b.queues.info([n]),
    "topics.create": lambda b, n: b.topics.create(n),
    "topics.publish": lambda b, n: b.topics.publish(n, [b"x"]),
    "topics.delete": lambda b, n: b.topics.delete(n),
    "topics.purge": lambda b, n: b.topics.purge(n),
    "topics.existing": lambda b, n: b.topics.existing(n),
    "topics.find": lambda b, n: b.topics.find([n]),
    "topics.grow": lambda b, n: b.topics.grow(n, 2),
    "topics.set_retention": lambda b, n: b.topics.set_retention(n, Retention()),
    "clients.register": lambda b, n: b.clients.register(n),
    "clients.find": lambda b, n: b.clients.find(n),
    "publishers.find": lambda b, n: b.publishers.find(n, lasting=True),
    "publishers.last_count": lambda b, n: b.publishers.last_count("p", "topic", n),
    "publishers.last_count of": lambda b, n: b.publishers.last_count(n, "topic", "t"),
    "subscriptions.subscribe": lambda b, n: b.subscriptions.subscribe(n, "s"),
    "subscriptions.subscribe as": lambda b, n: b.subscriptions.subscribe("t", n),
    "subscriptions.find": lambda b, n: b.subscriptions.find(n, n),
    "subscriptions.unsubscribe": lambda b, n: b.subscriptions.unsubscribe(n, n),
    "subscriptions.list": lambda b, n: b.subscriptions.list(n, n),
}


async def test_bad_names_everywhere(broker: Broker) -> None:
    """A bad name never ends in an error of the database itself: it is refused, or not found."""
    for what, call in BY_NAME.items():
        for name in BAD_NAMES:
            try:
                found = await call(broker, name)
            except (BrokerError, CallFailed):
                continue
            assert found in ([], 0), (what, name)


NumberCall = Callable[[Broker, int], Awaitable[object]]
BY_NUMBER: dict[str, NumberCall] = {
    "priority": lambda b, n: put(b, 1, Letter(b"x", n)),
    "receiver": lambda b, n: put(b, 1, Letter(b"x", receiver=n)),
    "context": lambda b, n: put(b, 1, Letter(b"x", context=n)),
    "take for": lambda b, n: b.queues.take(1, n),
    "take from": lambda b, n: b.queues.take(1, sender=n),
    "take answer": lambda b, n: b.queues.take(1, context=n),
    "mode": lambda b, n: b.queues.take(1, mode=n),
    "limit": lambda b, n: b.queues.take(1, limit=n),
    "queue": lambda b, n: b.queues.find_by_id(n),
    "delete queue": lambda b, n: b.queues.delete(n),
    "put into": lambda b, n: put(b, n, b"x"),
    "put into all": lambda b, n: b.queues.put_into_all([1, n], Letter(b"x")),
    "client": lambda b, n: b.clients.identify(n),
    "delete client": lambda b, n: b.clients.delete(n),
    "client mode": lambda b, n: b.clients.register("c", n),
    "partitions": lambda b, n: b.topics.create("more", n),
    "more partitions": lambda b, n: b.topics.grow("news", n),
    "publish to": lambda b, n: b.topics.publish("news", [b"x"], partition=n),
    "retention bytes": lambda b, n: b.topics.set_retention("news", Retention("size", None, -abs(n))),
}


async def test_numbers_out_of_range(broker: Broker) -> None:
    """Numbers that do not fit are refused clearly, whatever they stand for."""
    assert await queue(broker) == 1
    await broker.topics.publish("news", [b"x"])
    accepted = []
    for what, call in BY_NUMBER.items():
        for n in BEYOND:
            with contextlib.suppress(BrokerError, StoreError):
                accepted.append((what, n, await call(broker, n)))
    assert accepted == []
    assert await everything(broker, "news") == [b"x"]
    assert await broker.queues.browse(1) == []


@pytest.mark.parametrize("count", [2**63, 2**64, -1, -(2**63)])
async def test_counts_out_of_range(broker: Broker, count: int) -> None:
    """A publisher counts from 1, and not beyond what can be stored."""
    jobs = await queue(broker)
    alice = await broker.publishers.find("alice", lasting=True)
    with pytest.raises(InvalidInput):
        await put(broker, jobs, b"x", publisher=alice, count=count)
    with pytest.raises(InvalidInput):
        await broker.topics.publish("news", [b"x"], publisher=alice, count=count)
    assert await broker.queues.browse(jobs) == []


async def test_the_last_count_of_all(broker: Broker) -> None:
    """A count near the end of all numbers does not break what comes after it."""
    jobs = await queue(broker)
    alice = await broker.publishers.find("alice", lasting=True)
    for count in (2**63 - 2, 1):
        with contextlib.suppress(BrokerError, StoreError):
            await put(broker, jobs, b"x", b"y", b"z", publisher=alice, count=count)
        with contextlib.suppress(BrokerError, StoreError):
            await broker.topics.publish("news", [b"x", b"y", b"z"], publisher=alice, count=count)
    await put(broker, jobs, b"after")
    await broker.topics.publish("news", [b"after"])
    assert (await everything(broker, "news"))[-1] == b"after"


async def test_positions_out_of_range(broker: Broker) -> None:
    """A position beyond everything finds nothing or is refused; one below 0 is the beginning."""
    await broker.topics.publish("news", [b"x"])
    news = await broker.topics.existing("news")
    entries = await broker.topics.fetch(news, 1, -5, 10)
    assert entries is not None
    assert entries.first_offset == 0
    assert await broker.topics.fetch(news, 1, 2**62, 10) is None
    with pytest.raises(InvalidInput):
        await broker.topics.fetch(news, 1, 2**64, 10)


async def test_sizes(broker: Broker) -> None:
    """Bodies, keys, headers and batches have limits; what is at the limit goes through."""
    jobs = await queue(broker)
    limits = broker.limits
    assert limits == Limits()
    too_large = b"x" * (limits.max_body + 1)
    for call in (
        lambda: broker.topics.publish("news", [too_large]),
        lambda: broker.topics.publish("news", []),
        lambda: broker.topics.publish("news", [b"x"] * (limits.max_batch + 1)),
        lambda: broker.topics.publish("news", [b"x"], keys=["k" * (limits.max_key + 1)]),
        lambda: broker.topics.publish("news", [b"x"], keys=["a\0b"]),
        lambda: broker.topics.publish("news", [b"x"], keys=["a", "b"]),
        lambda: broker.topics.publish("news", [b"x"], headers=["{}", "{}"]),
        lambda: put(broker, jobs, too_large),
        lambda: put(broker, jobs),
    ):
        with pytest.raises(InvalidInput):
            await call()
    placed = await broker.topics.publish(
        "news", [too_large[:-1]], keys=["k" * limits.max_key], headers=['{"a": "b"}']
    )
    assert placed.offset == 0


BAD_HEADERS = ["", "x", "[]", "1", '{"a": 1}', '{"a": null}', '{"a": {}}', '{"a": "\\u0000"}']
BAD_HEADERS += ['{"\\u0000": ""}', '{"a": "\\ud800"}', "{" * 100_000, '{"a": "b"} x', "\ud800"]
BAD_HEADERS += ['{"a": "' + "x" * 70_000 + '"}']


async def test_bad_headers(broker: Broker) -> None:
    """Headers are a JSON object of strings that PostgreSQL can keep; nothing else gets in."""
    jobs = await queue(broker)
    for headers in BAD_HEADERS:
        with pytest.raises(InvalidInput):
            check_headers(broker.limits, [headers], 1)
        with pytest.raises(InvalidInput):
            await broker.topics.publish("news", [b"x"], headers=[headers])
        with pytest.raises(InvalidInput):
            await put(broker, jobs, Letter(b"x", headers=headers))


async def test_what_passes_the_checks_can_be_stored(broker: Broker) -> None:
    """Odd but allowed values go through, and come back as they were."""
    headers = ["{}", '{"": ""}', '{"é": "\\n\\t\\u0001"}', '{"a": "1", "a": "2"}']
    keys = ["", " ", "\x01", "\U0001f600"]
    check_keys(broker.limits, keys, 4)
    check_headers(broker.limits, headers, 4)
    await broker.topics.publish("news", [b"", b"\0", b"x", b"y"], keys=keys, headers=headers)
    entries = await broker.topics.fetch(await broker.topics.existing("news"), 1, 0, 9)
    assert entries is not None
    assert (entries.keys, entries.bodies) == (keys, [b"", b"\0", b"x", b"y"])
