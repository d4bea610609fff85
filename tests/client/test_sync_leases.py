"""Messages in hand, for programs without asyncio."""

from collections.abc import Iterator
from itertools import islice

import pytest

from nuncius import testing
from nuncius.client import Client, InvalidInput, Lease


@pytest.fixture(scope="module")
def broker(module_dsn: str) -> Iterator[testing.Broker]:
    """One broker for all tests here; each has names of its own."""
    with testing.broker(store=module_dsn) as made:
        yield made


@pytest.fixture
def client(broker: testing.Broker) -> Iterator[Client]:
    with broker.client() as connected:
        yield connected


def next_lease(client: Client, queue: str) -> Lease:
    lease = client.lease(queue, wait=20)
    assert lease is not None
    return lease


def test_lease_and_settle(client: Client) -> None:
    """A message in hand is nobody else's, and gone when it is settled."""
    client.create_queue("a")
    assert client.lease("a") is None
    client.put("a", "x", priority=3)
    lease = next_lease(client, "a")
    assert (lease.message.text, lease.message.priority, lease.attempts) == ("x", 3, 0)
    assert lease.origin == lease.message.message_id
    assert client.take("a") is None
    lease.settle()
    with pytest.raises(InvalidInput):
        lease.settle()
    assert client.lease("a") is None


def test_as_a_block(client: Client) -> None:
    """Leaving the block settles; an exception releases, with the reason, and passes."""
    client.create_queue("b")
    client.put("b", "x")
    with pytest.raises(ZeroDivisionError), next_lease(client, "b"):
        1 / 0  # noqa: B018
    (failure,) = client.status()["failures"]
    assert (failure["destination"], failure["reason"]) == ("/queue/b", "ZeroDivisionError: division by zero")
    with next_lease(client, "b") as lease:
        assert lease.attempts == 1
    assert client.lease("b") is None


def test_release(client: Client) -> None:
    """Without a reason a message comes again at once."""
    client.create_queue("c")
    client.put("c", "x")
    next_lease(client, "c").release()
    assert next_lease(client, "c").attempts == 0


def test_as_they_come(client: Client) -> None:
    """`leases` yields messages in hand for ever."""
    client.create_queue("d")
    client.put_batch("d", ["1", "2", "3"])
    seen = []
    for lease in islice(client.leases("d"), 3):
        with lease:
            seen.append(lease.message.text)
    assert seen == ["1", "2", "3"]
