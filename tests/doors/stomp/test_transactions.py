"""Transactions over STOMP: SENDs, ACKs and NACKs that happen together or not at all."""

import pytest

from doors.stomp.peer import Node, Peer, connected
from doors.stomp.test_queues import depth, leases, nothing_left
from nuncius.doors.stomp import transactions
from nuncius.store.pressure import TOO_SLOW

DESTINATIONS = ["/queue/jobs", "/topic/news"]


async def begin(peer: Peer, *bodies: bytes, name: str = "t") -> None:
    """Begins a transaction and sends to both destinations in it."""
    await peer.ask("BEGIN", transaction=name)
    for body in bodies:
        for destination in DESTINATIONS:
            await peer.ask("SEND", body, destination=destination, transaction=name)


async def test_commit(ann: Peer, bob: Peer) -> None:
    """What is sent in a transaction is seen after COMMIT, in order, and not before."""
    for n, destination in enumerate(DESTINATIONS):
        await bob.subscribe(destination, id=str(n))
    await begin(ann, b"1", b"2")
    for destination in DESTINATIONS:
        await ann.ask("SEND", b"outside", destination=destination)
    assert await bob.bodies(2) == [b"outside", b"outside"]
    await ann.ask("COMMIT", transaction="t")
    messages = await bob.messages(4)
    for name in ("0", "1"):
        assert [m.body for m in messages if m.headers["subscription"] == name] == [b"1", b"2"]


async def test_order_around_a_commit(ann: Peer, bob: Peer) -> None:
    """What was sent before the COMMIT is stored before what is in it, and what was sent after it comes after,
    without waiting for any receipt."""
    await bob.subscribe("/topic/news")
    ann.send("BEGIN", transaction="t")
    ann.send("SEND", b"inside", destination="/topic/news", transaction="t", message_id="1", key="k")
    for n in range(20):
        ann.send("SEND", b"before", destination="/topic/news", message_id=f"b{n}")
    ann.send("COMMIT", transaction="t")
    for _ in range(20):
        ann.send("SEND", b"after", destination="/topic/news")
    assert await bob.bodies(41) == [b"before"] * 20 + [b"inside"] + [b"after"] * 20


@pytest.mark.parametrize("end", ["ABORT", "DISCONNECT", "lost", "ERROR"])
async def test_abort(node: Node, bob: Peer, end: str) -> None:
    """A transaction that is aborted, or whose connection ends, never was: what it acknowledged is not."""
    await bob.subscribe("/topic/news")
    async with connected(node) as ann:
        await ann.ask("SEND", b"job", destination="/queue/jobs")
        await ann.subscribe("/queue/jobs", ack="client-individual")
        (job,) = await ann.messages(1)
        await begin(ann, b"1")
        await ann.ask("ACK", id=job.headers["ack"], transaction="t")
        if end == "ABORT":
            await ann.ask("ABORT", transaction="t")
            await ann.ask("NACK", id=job.headers["ack"])
        elif end == "DISCONNECT":
            await ann.ask("DISCONNECT")
        elif end == "ERROR":
            await ann.refused("BEGIN", transaction="t")
    await bob.subscribe("/queue/jobs", id="1")
    await bob.ask("SEND", b"other", destination="/topic/news")
    assert sorted(await bob.bodies(2)) == [b"job", b"other"]
    await nothing_left(node)
    assert node.broker.pressure.held == 0


@pytest.mark.parametrize("destination", DESTINATIONS)
@pytest.mark.parametrize("ack", ["client", "client-individual"])
async def test_acks_in_a_transaction(node: Node, ann: Peer, destination: str, ack: str) -> None:
    """An ACK in a transaction takes effect with its COMMIT, and a NACK does, too."""
    durable = {} if destination.startswith("/queue") else {"durable": "bob"}
    async with connected(node) as bob:
        await bob.subscribe(destination, ack=ack, **durable)
        for body in (b"1", b"2", b"3"):
            await ann.ask("SEND", body, destination=destination)
        first, second, third = await bob.messages(3)
        await bob.ask("BEGIN", transaction="t")
        await bob.ask("BEGIN", transaction="u")
        await bob.ask("ACK", id=first.headers["ack"], transaction="t")
        await bob.ask("NACK", id=second.headers["ack"], transaction="u", reason="no")
        await bob.ask("ACK", id=third.headers["ack"])
        await bob.ask("COMMIT", transaction="u")
        (again,) = await bob.messages(1)
        assert (again.body, again.headers["attempt"]) == (b"2", "2")
        await bob.ask("ACK", id=again.headers["ack"])
        await bob.ask("ABORT", transaction="t")
        await bob.ask("BEGIN", transaction="t")
        await bob.ask("ACK", id=first.headers["ack"], transaction="t")
        await bob.ask("SEND", b"4", destination=destination, transaction="t")
        await bob.ask("COMMIT", transaction="t")
        (fourth,) = await bob.messages(1)
        await bob.ask("ACK", id=fourth.headers["ack"])
        await bob.ask("UNSUBSCRIBE", id="0")
        await bob.subscribe(destination, ack=ack, **durable)
        await ann.ask("SEND", b"5", destination=destination)
        assert await bob.bodies(1) == [b"5"]


async def test_an_acknowledged_message_waits_for_its_transaction(node: Node, ann: Peer, bob: Peer) -> None:
    """A message that a transaction has acknowledged cannot be acknowledged again meanwhile."""
    await bob.subscribe("/queue/jobs", ack="client", prefetch_count="1")
    await ann.ask("SEND", b"1", destination="/queue/jobs")
    await ann.ask("SEND", b"2", destination="/queue/jobs")
    (message,) = await bob.messages(1)
    await bob.ask("BEGIN", transaction="t")
    await bob.ask("ACK", id=message.headers["ack"], transaction="t")
    assert (await depth(node), await leases(node)) == (1, 1)
    assert "acknowledgement" in await bob.refused("ACK", id=message.headers["ack"])


async def test_unsubscribe_within_a_transaction(node: Node, ann: Peer, bob: Peer) -> None:
    """What a transaction acknowledged is its own: it is settled or goes back when the transaction ends,
    though the subscription has ended before."""
    for end, left in (("COMMIT", 0), ("ABORT", 1)):
        await bob.subscribe("/queue/jobs", ack="client")
        await ann.ask("SEND", end.encode(), destination="/queue/jobs")
        (message,) = await bob.messages(1)
        await bob.ask("BEGIN", transaction="t")
        await bob.ask("ACK", id=message.headers["ack"], transaction="t")
        await bob.ask("UNSUBSCRIBE", id="0")
        await bob.ask(end, transaction="t")
        while await leases(node):
            pass
        assert await depth(node) == left


async def test_a_commit_that_fails(node: Node, bob: Peer) -> None:
    """If one thing in a transaction cannot be done, nothing is, and the client learns it by an ERROR."""
    await bob.subscribe("/topic/news")
    await bob.subscribe("/queue/jobs", id="1", ack="client")
    async with connected(node) as ann:
        await ann.ask("SEND", b"job", destination="/queue/jobs")
        (job,) = await bob.messages(1)
        await begin(bob, b"1")
        await bob.ask("ACK", id=job.headers["ack"], transaction="t")
        await bob.ask("SEND", b"2", destination="/topic/news", transaction="t", key="k" * 2000)
        assert "key" in await bob.refused("COMMIT", transaction="t")
    assert (await node.broker.topics.find(["news"]))[0].partitions[0].next_offset == 0
    async with connected(node) as ann:
        await ann.subscribe("/queue/jobs")
        assert await ann.bodies(1) == [b"job"]


async def test_no_commit_after_a_failure(node: Node, ann: Peer, bob: Peer) -> None:
    """A COMMIT behind a frame that fails is not carried out."""
    await bob.subscribe("/topic/news")
    ann.send("BEGIN", transaction="t")
    ann.send("SEND", b"inside", destination="/topic/news", transaction="t")
    ann.send("SEND", b"bad", destination="/topic/news", key="k" * 2000, message_id="1", receipt="bad")
    ann.send("COMMIT", transaction="t", receipt="commit")
    assert (await ann.error()).headers["receipt-id"] == "bad"
    await bob.ask("SEND", b"other", destination="/topic/news")
    assert await bob.bodies(1) == [b"other"]
    del node


async def test_unknown_transactions(ann: Peer) -> None:
    """A SEND in a transaction that has not begun is an ERROR."""
    assert "no transaction" in await ann.refused("SEND", destination="/queue/a", transaction="t")


async def test_too_many_transactions(ann: Peer) -> None:
    """A connection may not have any number of transactions open."""
    for n in range(transactions.MAX_TRANSACTIONS):
        ann.send("BEGIN", transaction=str(n))
    assert "at most" in await ann.refused("BEGIN", transaction="one more")


async def test_too_many_large_transactions(node: Node, ann: Peer, bob: Peer) -> None:
    """There is a limit for all connections together, too; headers count like bodies, and small ones are let
    be."""
    node.broker.pressure.budget = 6 << 20
    large = {"destination": "/queue/a", "x": "x" * 10_000, "y": "y" * 10_000}
    for peer in (ann, bob):
        peer.send("BEGIN", transaction="t")
        peer.send("BEGIN", transaction="small")
    for _ in range(100):
        ann.send("SEND", transaction="t", **large)
    await ann.ask("SEND", b"z" * (1 << 20), destination="/queue/a")
    assert node.broker.pressure.held > 2_000_000
    for _ in range(60):
        bob.send("SEND", transaction="t", **large)
    assert (await ann.error()).headers["message"] == TOO_SLOW
    await bob.ask("COMMIT", transaction="t")
    assert node.broker.pressure.held == 0
    assert await depth(node, "a") == 61


async def test_too_large_transactions(node: Node, ann: Peer) -> None:
    """What is open is in memory, so there is a limit to it."""
    ann.send("BEGIN", transaction="t")
    for _ in range(3):
        ann.send("SEND", b"x" * (7 << 20), destination="/queue/a", transaction="t")
    assert "at most" in (await ann.error()).headers["message"]
    assert node.broker.pressure.held == 0
