"""The client for programs without asyncio has the verbs of the other one, and waits."""

import inspect
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

import nuncius
from nuncius import testing
from nuncius.client import (
    AsyncClient,
    AsyncLease,
    AsyncSubscription,
    CannotConnect,
    Client,
    Closed,
    InvalidInput,
    Lease,
    NotFound,
    Receipt,
    Subscription,
    Timeout,
)
from nuncius.client.blocking.background import MAX_OPEN

# What only makes sense for one of the two, or belongs to the inside of the other.
OWN = {"publish_soon", "put_soon"}
INSIDE = {
    "attach",
    "detach",
    "credit",
    "pause",
    "resume",
    "received",
    "attach_soon",
    "broke_off",
    "confirm_soon",
    "failed",
    "attached",
    "prefetch",
    "confirm_place",
}


@pytest.fixture(scope="module")
def broker(module_dsn: str) -> Iterator[testing.Broker]:
    """One broker for all tests here; each has names of its own."""
    with testing.broker(store=module_dsn) as made:
        yield made


@pytest.fixture
def client(broker: testing.Broker) -> Iterator[Client]:
    """A connected client."""
    with broker.client() as connected:
        yield connected


def verbs(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(member)
        for name, member in inspect.getmembers(kind, inspect.isroutine)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("ours", "theirs"), [(Client, AsyncClient), (Subscription, AsyncSubscription), (Lease, AsyncLease)]
)
def test_the_same_verbs(ours: type, theirs: type) -> None:
    """Every verb is there, with the same parameters and defaults."""
    mine, others = verbs(ours), verbs(theirs)
    assert set(mine) - OWN == set(others) - INSIDE
    for name in set(mine) - OWN:
        assert mine[name].parameters == others[name].parameters, name


def test_from_the_top() -> None:
    """The clients and the testing tools are where a user looks for them."""
    assert nuncius.Client is Client
    assert nuncius.AsyncClient is AsyncClient
    assert nuncius.testing is testing
    with pytest.raises(AttributeError):
        nuncius.nonsense  # noqa: B018


def test_topics(client: Client) -> None:
    """Publishing returns when the entry is stored, and reading gives it back."""
    assert client.publish("news", "hello", key="k", headers={"a": "b"}) == Receipt(1, 0)
    assert [r.offset for r in client.publish_batch("news", ["one", b"two"])] == [1, 2]
    entries = client.fetch("news")
    assert [entry.text for entry in entries] == ["hello", "one", "two"]
    assert (entries[0].key, entries[0].headers) == ("k", {"a": "b"})
    (topic,) = client.topics("news")
    assert topic.entries == 3
    client.set_retention("news", "time", seconds=60)
    assert client.topics("news")[0].retention == "time"
    assert client.purge_topic("news") == 3
    client.delete_topic("news")
    with pytest.raises(NotFound):
        client.fetch("news")
    client.create_topic("wide", partitions=3)
    assert len(client.topics("wide")[0].partitions) == 3
    client.grow_topic("wide", 4)
    assert len(client.topics("wide")[0].partitions) == 4


def test_queues(client: Client) -> None:
    """Messages are taken by priority, waited for, and looked at without taking them."""
    assert client.create_queue("jobs") > 0
    client.create_queue("more")
    client.put("jobs", "low", priority=1)
    client.put("jobs", "high", priority=9)
    assert len(client.put(["jobs", "more"], "both").message_ids) == 2
    client.put_batch("jobs", ["a", "b"], priority=5)
    assert [message.text for message in client.browse("jobs")] == ["low", "high", "both", "a", "b"]
    first = client.take("jobs")
    assert first is not None
    assert first.text == "high"
    assert [m.text for m in client.take_batch("jobs", 10)] == ["both", "a", "b", "low"]
    assert client.take("jobs", wait=0.01) is None
    assert client.purge_queue("more") == 1
    assert client.queues("more")[0].depth == 0
    client.delete_queue("more")


def test_messages_as_they_come(client: Client) -> None:
    """Iterating over a queue takes messages as they come."""
    client.create_queue("stream")
    coming = client.messages("stream")
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(next, coming)
        client.put("stream", "one")
        assert first.result(30).text == "one"
    client.put("stream", "two")
    assert next(coming).text == "two"


def test_request_and_reply(broker: testing.Broker, client: Client) -> None:
    """A request in one thread is answered by another client in another thread."""
    client.create_queue("questions")

    def answer() -> None:
        with broker.client() as service:
            question = next(service.messages("questions"))
            service.reply(question, question.text.upper())

    with ThreadPoolExecutor(1) as thread:
        answering = thread.submit(answer)
        assert client.request("questions", "hello").text == "HELLO"
        answering.result(30)
    with pytest.raises(Timeout):
        client.request("questions", "anybody?", timeout=0.05)


def test_pipelining(client: Client) -> None:
    """Many publishes and puts under way at once keep their order, and each has its receipt."""
    futures = [client.publish_soon("many", str(number)) for number in range(2 * MAX_OPEN)]
    offsets = [future.result(60).offset for future in futures]
    assert offsets == list(range(2 * MAX_OPEN))
    client.create_queue("many")
    puts = [client.put_soon("many", str(number)) for number in range(100)]
    assert len({put.result(60).message_ids for put in puts}) == 100


def test_mistakes_are_raised_where_the_result_is(client: Client) -> None:
    """A bad message fails its own future and nothing else."""
    bad = client.publish_soon("mixed", b"x" * (64 << 20))
    good = client.publish_soon("mixed", "fine")
    with pytest.raises(InvalidInput):
        bad.result(30)
    assert good.result(30).offset == 0
    with pytest.raises(InvalidInput):
        client.put("", "no name")


def test_several_threads(client: Client) -> None:
    """Threads share a client; what they publish is all there, in the order of each."""

    def publish(thread: int) -> None:
        for number in range(200):
            client.publish("shared", f"{thread} {number}")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(publish, range(8)))
    entries = [entry.text.split() for entry in client.fetch("shared", limit=2000)]
    for thread in range(8):
        assert [int(n) for t, n in entries if int(t) == thread] == list(range(200))


def test_a_callback_may_publish_but_not_wait(client: Client) -> None:
    """A future's callback can start more, and is told when it would wait for itself."""
    outcome: Future[tuple[RuntimeError, Future[Receipt], Receipt]] = Future()

    def then(done: Future[Receipt]) -> None:
        if threading.current_thread() is threading.main_thread():
            start()  # it was done before it got the callback
            return
        try:
            client.publish("chain", "waits")
        except RuntimeError as error:
            outcome.set_result((error, client.publish_soon("chain", "second"), done.result()))

    def start() -> None:
        client.publish_soon("chain", "first").add_done_callback(then)

    start()
    error, second, first = outcome.result(30)
    assert "must not wait" in str(error)
    assert first.offset is not None
    assert second.result(30).offset == first.offset + 1


def test_subscription(client: Client) -> None:
    """Entries come in order; those dealt with are confirmed, and reading goes on after them."""
    client.publish_batch("log", [str(number) for number in range(10)])
    with client.subscribe("log", "reader", start="earliest") as subscription:
        read = []
        for entry in subscription:
            read.append(int(entry.text))
            if len(read) == 5:
                break
        assert read == [0, 1, 2, 3, 4]
        for entry in subscription:  # the rest of what was under way is not lost
            read.append(int(entry.text))
            if len(read) == 8:
                break
        assert read == list(range(8))
    (state,) = client.subscriptions("log", "reader")
    assert state.lag == 3  # the eighth was not dealt with: nobody asked for the ninth
    with client.subscribe("log", "reader") as subscription:
        assert [entry.text for entry in subscription.next_batch(30)] == ["7", "8", "9"]
        with pytest.raises(Timeout):
            subscription.next_batch(0.05)
        client.publish("log", "10")
        (entry,) = subscription.next_batch(30)  # what came after the waiting ended is not lost
        assert entry.text == "10"
        subscription.confirm(entry)
        assert client.subscriptions("log", "reader")[0].lag == 0
    client.unsubscribe("log", "reader")
    assert client.subscriptions("log") == []


def test_batches(client: Client) -> None:
    """Asking for the next batch confirms the one before."""
    client.publish_batch("batched", ["a", "b"])
    with client.subscribe("batched", "reader", start="earliest") as subscription:
        batches = subscription.batches()
        assert [entry.text for entry in next(batches)] == ["a", "b"]
        client.publish("batched", "c")
        assert [entry.text for entry in next(batches)] == ["c"]
    assert client.subscriptions("batched", "reader")[0].lag == 1


def test_a_batch_that_was_not_processed(client: Client) -> None:
    """Leaving the block in the middle of a batch confirms nothing of it."""
    client.publish_batch("halfway", ["a", "b", "c"])
    with client.subscribe("halfway", "reader", start="earliest") as subscription:
        assert [entry.text for entry in next(subscription.batches())] == ["a", "b", "c"]
    assert client.subscriptions("halfway", "reader")[0].lag == 3


def test_no_automatic_confirmation(client: Client) -> None:
    """With auto_confirm=False nothing is confirmed but what the user confirms."""
    client.publish_batch("manual", ["a", "b", "c"])
    with client.subscribe("manual", "me", start="earliest", auto_confirm=False) as subscription:
        entries = iter(subscription)
        subscription.confirm(next(entries))
        next(entries)
        next(entries)
    assert client.subscriptions("manual", "me")[0].lag == 2
    client.confirm("manual", "me", 1, 3)
    assert client.subscriptions("manual", "me")[0].lag == 0


def test_closing_a_subscription_ends_its_reader(client: Client) -> None:
    """A thread that waits for entries is told that the subscription was closed."""
    client.create_topic("silent")
    waiting = client.subscribe("silent", "reader")
    reading = threading.Event()

    def read() -> None:
        reading.set()
        waiting.next_batch()

    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(read)
        reading.wait(30)
        client.publish("silent", "one")
        ended.result(30)
        again = thread.submit(waiting.next_batch)
        waiting.close()
        with pytest.raises(Closed):
            again.result(30)


def test_facts(broker: testing.Broker) -> None:
    """A client with a name has an id, and the node answers for itself."""
    with broker.client(name="me") as named:
        assert named.client_id == named.find_client("me") > 0
        assert named.ping() > 0
        assert named.status()["schema"] >= 1


def test_a_publisher_with_a_past(broker: testing.Broker) -> None:
    """A publisher with a name goes on counting after a restart of its program."""
    for expected in (0, 1):
        with broker.client(publisher="diary") as client:
            assert client.publish("days", str(expected)).offset == expected


def test_closed(broker: testing.Broker) -> None:
    """A closed client says so; closing it again does nothing."""
    client = Client.connect(broker.url)
    client.close()
    client.close()
    with pytest.raises(Closed):
        client.publish("news", "too late")
    with pytest.raises(Closed):
        client.ping()


def test_closing_while_threads_are_at_work(broker: testing.Broker) -> None:
    """Every thread that uses a client while it is closed is told so, wherever its call was."""

    def work(client: Client, at_work: threading.Event) -> None:
        while True:
            client.publish("busy", "x")
            client.publish_soon("busy", "x")
            client.ping()
            at_work.set()

    with ThreadPoolExecutor(8) as threads:
        for _ in range(10):
            client, at_work = Client.connect(broker.url), threading.Event()
            working = [threads.submit(work, client, at_work) for _ in range(8)]
            at_work.wait(30)
            client.close()
            assert {type(each.exception(30)) for each in working} == {Closed}


def test_closing_the_client_first(broker: testing.Broker) -> None:
    """A subscription may be closed after its client, and then gives nothing more."""
    client = Client.connect(broker.url)
    subscription = client.subscribe("silent", "late")
    client.close()
    subscription.close()
    with pytest.raises(Closed):
        subscription.next_batch()


FORK = """
import os, sys, nuncius
with nuncius.Client(sys.argv[1]) as client:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        print("the parent's works", client.ping() > 0)
    else:
        try:
            client.ping()
        except nuncius.client.Closed as error:
            print(error)
"""


def test_a_forked_process(broker: testing.Broker) -> None:
    """A child of fork is told that the client stayed with its parent, and can leave its block."""
    program = [sys.executable, "-c", FORK, broker.url]
    said = subprocess.run(program, capture_output=True, text=True, timeout=300, check=True)
    assert said.stdout.splitlines() == [
        "a client does not go along into a forked process: open another one there",
        "the parent's works True",
    ]


def test_closing_ends_the_thread(broker: testing.Broker) -> None:
    """No thread stays behind, whether or not the connection came about."""
    before = threading.active_count()
    with broker.client():
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    with pytest.raises(CannotConnect):
        Client.connect("nuncius://127.0.0.1:1")
    assert threading.active_count() == before


def test_reconnect() -> None:
    """A restart of the node is no more than a delay."""
    with testing.broker() as broker, broker.client() as client:
        client.publish("news", "before")
        broker.restart()
        assert client.publish("news", "after").offset == 1


WAIT = """
import sys, nuncius
with nuncius.Client(sys.argv[1]) as client:
    client.create_queue("empty")
    try:
        print("waiting", flush=True)
        client.take("empty", wait=600)
    except KeyboardInterrupt:
        print("interrupted", client.ping() > 0)
"""


def test_ctrl_c(broker: testing.Broker) -> None:
    """Ctrl-C ends a call that waits, and the client lives on."""
    process = subprocess.Popen([sys.executable, "-c", WAIT, broker.url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=300)[0] == "interrupted True\n"
    assert process.returncode == 0
