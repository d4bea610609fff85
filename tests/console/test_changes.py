"""Changes: each does what its sentence says and leaves a line in the log; a read-only console makes none."""

import logging
from datetime import UTC, datetime

import pytest
from fastapi import Request

from nuncius.broker import Broker
from nuncius.broker.errors import InvalidInput, NoSuchQueue
from nuncius.cluster.proxies import Proxies
from nuncius.console.changes import ReadOnly
from nuncius.console.context import Console, visitor

WHO = "192.0.2.7"


async def test_a_change_is_logged_with_who_and_what(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """Also one that failed, with the reason."""
    caplog.set_level(logging.INFO, "nuncius.console.changes")
    async with Console(broker) as console:
        await console.changes.create_queue(WHO, "a")
        with pytest.raises(NoSuchQueue):
            await console.changes.put(WHO, "b", b"x", 5)
    first, second = (vars(record) for record in caplog.records)
    assert (first["message"], first["who"], first["what"], first["queue"]) == (
        "changed",
        WHO,
        "create queue",
        "a",
    )
    assert (second["message"], second["error"]) == ("not changed", "there is no queue 'b'")


async def test_a_read_only_console_refuses_every_change(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever asks and for whatever, nothing is changed, and the attempt is logged."""
    queue = await broker.queues.create("q")
    other = await broker.queues.create("other")
    await broker.topics.publish("t", [b"kept"])
    await broker.subscriptions.subscribe("t", "s")
    async with Console(broker, read_only=True) as console:
        changes = console.changes
        attempts = [
            changes.create_queue(WHO, "new"),
            changes.put(WHO, "q", b"x", 5),
            changes.take(WHO, queue.queue_id),
            changes.move(WHO, queue.queue_id, [1], other.name),
            changes.remove(WHO, queue.queue_id, [1]),
            changes.purge_queue(WHO, queue.queue_id),
            changes.publish(WHO, "t", b"x"),
            changes.republish(WHO, "t", 1, 0, "t"),
            changes.purge_topic(WHO, "t"),
            changes.seek(WHO, "t", "s", "earliest"),
            changes.unsubscribe(WHO, "t", "s"),
            changes.retry(WHO, queue.queue_id),
            changes.revive(WHO, queue.queue_id, [1]),
            changes.revive_entry(WHO, "t", 1, 0),
            changes.disconnect(WHO, "h:1", "http-1"),
            changes.forget_nodes(WHO, [1]),
        ]
        for attempt in attempts:
            with pytest.raises(ReadOnly):
                await attempt
        overview = await console.facts.overview()
    assert (overview.queues, overview.messages, overview.entries, overview.subscriptions) == (2, 0, 1, 1)
    refused = [record for record in caplog.records if record.message.startswith("refused")]
    assert len(refused) == len(attempts)


async def test_a_dead_letter_of_a_topic_is_published_anew(broker: Broker) -> None:
    """It goes where it came from, without what it was told of its death."""
    headers = '{"dead-reason": "refused", "colour": "blue"}'
    await broker.topics.publish("dead/t", [b"again"], headers=[headers])
    async with Console(broker) as console:
        said = await console.changes.revive_entry(WHO, "dead/t", 1, 0)
        entry = await console.facts.topics.entry("t", 1, 0)
    assert said == "Published message 0 anew where it came from."
    assert (entry.preview, entry.headers) == (b"again", {"colour": "blue"})


async def test_a_place_to_seek_must_be_one(broker: Broker) -> None:
    """The earliest, the latest, a time or offsets; nothing else."""
    await broker.topics.publish("t", [b"1", b"2"])
    await broker.subscriptions.subscribe("t", "s")
    async with Console(broker) as console:
        for where, position in (
            ("earliest", 0),
            ("latest", 2),
            (datetime(2020, 1, 1, tzinfo=UTC), 0),
            ({1: 1}, 1),
        ):
            await console.changes.seek(WHO, "t", "s", where)
            subscription = await broker.subscriptions.find("t", "s")
            assert await broker.positions.of(subscription) == {1: position}
        with pytest.raises(InvalidInput):
            await console.changes.seek(WHO, "t", "s", "somewhere")


@pytest.mark.parametrize(
    ("peer", "told", "user", "who"),
    [
        ("10.0.0.1", "192.0.2.7", "", "192.0.2.7"),
        ("10.0.0.1", "192.0.2.7", "ann", "ann (192.0.2.7)"),
        ("10.0.0.1", "203.0.113.9, 192.0.2.7, 10.0.0.2", "ann", "ann (192.0.2.7)"),
        ("10.0.0.1", "nonsense", "ann", "ann (10.0.0.1)"),
        ("127.0.0.1", "192.0.2.7", "ann", "127.0.0.1"),
        ("10.0.0.1", None, "", "10.0.0.1"),
        ("somewhere", "192.0.2.7", "ann", "somewhere"),
        (None, None, "", "unknown"),
    ],
)
def test_who_looks(peer: str | None, told: str | None, user: str, who: str) -> None:
    """A visitor is named as a proxy says only where that proxy is trusted; of several addresses the last one
    counts that is no proxy, because a client may have sent the others."""
    headers = [] if told is None else [(b"x-forwarded-for", told.encode())]
    headers.append((b"x-forwarded-user", user.encode()))
    scope = {"type": "http", "headers": headers, "client": None if peer is None else (peer, 1)}
    assert visitor(Request(scope), Proxies(["10.0.0.0/8"])) == who
