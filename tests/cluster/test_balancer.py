"""The balancer: who is asked, what happens when one does not answer, and that every request is answered."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from cluster.balanced import World, balanced, member
from cluster.scripted_manager import HANG, answer
from nuncius.cluster.balancer import balancer as module
from nuncius.cluster.balancer import managers as balancer_managers
from nuncius.cluster.balancer.managers import READS, WRITES, kind_of
from nuncius.cluster.dialects import QueueDialect
from nuncius.cluster.reverse_proxy import upstream as balancer_upstream
from racing import until


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with balanced() as made:
        yield made


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("POST", "/topics", WRITES),
        ("GET", "/topics", WRITES),
        ("POST", "/producer/produce", WRITES),
        ("POST", "/broker", WRITES),
        ("DELETE", "/broker/remove", WRITES),
        ("POST", "/partition", WRITES),
        ("POST", "/consumer/register", READS),
        ("GET", "/consumer/consume", READS),
        ("GET", "/size", READS),
        ("POST", "/v1/topics/news/messages", WRITES),
        ("GET", "/v1/topics", READS),
        ("POST", "/v1/topics/news/subscriptions/a/confirm", READS),
        ("GET", "/docs", READS),
    ],
)
def test_who_is_asked(method: str, path: str, kind: str) -> None:
    """Writes go to the write manager, reads to the read managers, as the report has it."""
    assert kind_of(method.encode(), path.encode()) == kind


async def test_in_turn(world: World) -> None:
    """Reads go to the read managers one after the other, writes all to the write manager; requests arrive
    whole, on connections that are kept."""
    assert {(await world.get())[1] for _ in range(2)} == {b"first", b"second"}
    for _ in range(4):
        await world.get("/size?topic=A", headers="X-Other: 1\r\nConnection: keep-alive\r\n")
    assert await world.ask("POST", "/producer/produce", b'{"a": 1}') == (200, b"writer")
    assert len(world.first.requests) == len(world.second.requests) == 3
    assert world.first.connections == world.second.connections == 1
    assert b"GET /size?topic=A HTTP/1.1\r\nhost: x\r\nX-Other: 1\r\n\r\n" in world.first.requests
    assert world.writer.requests[0].endswith(b'content-length: 8\r\n\r\n{"a": 1}')


async def test_asked_from_another_machine(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Managers that only this machine reaches are not asked by a name they do not know; they are told it."""
    monkeypatch.setattr("nuncius.cluster.balancer.client.is_loopback", lambda address: not address)
    assert (await world.get())[0] == 200
    [request] = world.first.requests + world.second.requests
    assert b"\r\nhost: localhost\r\nx-forwarded-host: x\r\n" in request


async def test_left_out(world: World) -> None:
    """A manager that does not answer is left out, and asked again when it is back."""
    await world.first.close()
    assert {(await world.get())[1] for _ in range(6)} == {b"second"}
    await world.first.open()

    async def is_back() -> bool:
        return (await world.get())[1] == b"first"

    await until(is_back)


async def test_nobody_answers(world: World) -> None:
    """When nobody is left, the error says who failed, and the connection lives on."""
    for each in (world.writer, world.first, world.second):
        await each.close()
    assert await world.failure("POST", "/topics") == (
        f"Write Manager Failed: 127.0.0.1:{world.writer.port} does not answer"
    )
    assert (await world.failure()).startswith("Read Manager Failed: 127.0.0.1:")
    world.balancer.learn([member("writer", world.writer.port, alive=False)])
    assert await world.failure("POST", "/topics") == "Write Manager Failed: there is none"
    assert await world.get("/livez") == (200, b"ok\n")


async def test_lost_on_the_way(world: World) -> None:
    """A manager that hangs up may have done what was asked: a read, or what has a key, is asked of the next
    one, the rest is told."""
    world.first.script = lambda _: None
    for _ in range(4):
        assert await world.get() == (200, b"second")
    consume = "/consumer/consume"
    answers = [await world.get(consume, headers="Idempotency-Key: 7\r\n") for _ in range(4)]
    assert set(answers) == {(200, b"second")}

    async def told() -> bool:
        status, body = await world.get(consume)
        return status == 400 and b"closed the connection; it may or may not have done" in body

    await until(told)


async def test_a_manager_that_fails(world: World) -> None:
    """A manager's own failure is told in its name and with its address; what it says of a request is passed
    on as it is; /v1 has its own way of telling."""
    world.writer.script = lambda _: answer(b'{"status":"failure","message":"no broker answers"}', 503)
    assert await world.failure("POST", "/topics") == (
        f"Write Manager Failed: 127.0.0.1:{world.writer.port}: no broker answers"
    )
    world.writer.script = lambda _: answer(b"oops", 500)
    assert (await world.failure("POST", "/topics")).endswith("answered with status 500")
    assert await world.ask("POST", "/v1/topics", b"{}") == (500, b"oops")
    world.writer.script = lambda _: answer(b'{"status":"failure","message":"Topic already exists"}', 400)
    assert await world.failure("POST", "/topics") == "Topic already exists"
    world.writer.script = lambda _: b"hello\r\n\r\n"
    assert "sent something that is not HTTP" in await world.failure("POST", "/topics")


async def test_v1_is_told_in_its_own_way(world: World) -> None:
    """When nobody answers it is a 503 in the form of /v1: `unavailable` when nothing was done,
    `outcome_unknown` when something may have been."""
    path = "/v1/topics/news/messages"
    world.writer.script = lambda _: None
    status, body = await world.ask("POST", path, b"{}")
    assert (status, json.loads(body)["error"]) == (503, "outcome_unknown")
    assert "it may or may not have done what was asked" in json.loads(body)["message"]
    await world.writer.close()
    status, body = await world.ask("POST", path, b"{}")
    assert (status, json.loads(body)["error"]) == (503, "unavailable")
    assert json.loads(body)["message"].startswith("Write Manager Failed: 127.0.0.1:")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/topics", b'{"topic_name": "A"}'),
        ("POST", "/producer/produce", b'{"message": "x", "topic_name" : "A"}'),
        ("GET", "/consumer/consume?consumer_id=1&topic_name=A", b""),
        ("POST", "/broker", b'{"port": 1000}'),
        ("DELETE", "/broker/remove", b'{"broker_id": 1}'),
    ],
)
async def test_the_authors_balancer(world: World, method: str, path: str, body: bytes) -> None:
    """In the authors' spelling what a manager refuses is told in its name, too, as their balancer does."""
    for each in (world.writer, world.first, world.second):
        each.script = lambda _: answer(b'{"status":"failure","message":"No"}', 400)
    kind = "Read" if path.startswith("/consumer") else "Write"
    assert await world.failure(method, path, body=body) == f"{kind} Manager Failed: No"
    assert await world.failure(method, path, body=body) == f"{kind} Manager Failed: No"  # that it is kept
    course = b'{"topic": "A", "message": "not \\"topic_name\\": "}'
    assert await world.failure("POST", "/producer/produce", body=course) == "No"


async def test_no_request_hangs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manager that takes a request and says nothing is given up."""
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(balancer_managers, "REST_SECONDS", 60.0)
    world.writer.script = lambda _: HANG
    async with asyncio.timeout(60):
        assert "has not answered in time" in await world.failure("POST", "/topics")
        world.first.script = lambda _: HANG
        assert [await world.get() for _ in range(4)] == [(200, b"second")] * 4


async def test_a_host_that_is_not_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is not made in time is a manager that does not answer."""
    monkeypatch.setattr(balancer_upstream, "CONNECT_SECONDS", 0.0)
    assert (await world.failure()).endswith("does not answer")


async def test_somebody_has_just_started(world: World) -> None:
    """When nobody is known, the balancer looks again before it says so."""
    world.balancer.learn([])

    async def look() -> None:
        world.balancer.learn([member("writer", world.writer.port)])

    world.balancer.look = look
    assert await world.ask("POST", "/topics") == (200, b"writer")
    assert await world.failure() == "Read Manager Failed: there is none"


async def test_closing(world: World) -> None:
    """What was asked is answered, then connections end."""
    world.writer.script = lambda _: HANG
    asked = asyncio.ensure_future(world.ask("POST", "/topics"))
    await until(lambda: world.writer.requests)
    closing = asyncio.ensure_future(world.balancer.close())
    await asyncio.sleep(0)
    assert not closing.done()
    for writer in world.writer.writers:
        writer.write(answer(b"late"))
    assert await asked == (200, b"late")
    await asyncio.wait_for(closing, 10)


@pytest.mark.parametrize(("dialect", "is_prefixed"), [(QueueDialect.A1, False), (QueueDialect.A2, True)])
@pytest.mark.parametrize("name", ["topic", "topic_name"])
async def test_a_dialect(world: World, dialect: QueueDialect, is_prefixed: bool, name: str) -> None:
    """A balancer that was told a dialect tells refusals in it, however the request is spelt."""
    world.balancer.sentences = dialect.is_in_sentences
    world.writer.script = lambda _: answer(b'{"status":"failure","message":"Topic already exists"}', 400)
    said = await world.failure("POST", "/topics", body=json.dumps({name: "A"}).encode())
    assert said == ("Write Manager Failed: " if is_prefixed else "") + "Topic already exists"
