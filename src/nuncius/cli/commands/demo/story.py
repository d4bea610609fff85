"""The story that `nuncius demo` plays and `nuncius tour` explains, step by step.

January 1610 in Padua: Galileo sees moons beside Jupiter. The news goes to readers in several cities, and each
of them reads it through another door.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nuncius.cli.commands.demo.world import World
from nuncius.cli.http import NoHttpAnswer
from nuncius.client import Entry
from nuncius.client.zeromq import Message as PubSubMessage
from nuncius.store.queries import query

TOPIC = "moons"
QUEUE = "letters"
BROKEN = "orders"
NEWS = {
    "telesto": "7 January: three little stars beside Jupiter",
    "stomp": "8 January: all three are west of it now",
    "zeromq": "10 January: only two are left",
    "http": "13 January: there are four",
    "sql": "15 January: they go round Jupiter",
}
TRIBBLE = "They are moons!"


@dataclass(frozen=True, slots=True)
class DemoStep:
    title: str
    why: str
    """An explanation for the tour."""
    try_it: str
    """A command that does the same."""
    act: Callable[[World], Iterator[str]]


def subscribe(world: World) -> Iterator[str]:
    world.notes["native"] = world.native.subscribe(TOPIC, "venice", start="earliest")
    yield "venice  subscribes with the native client"
    world.stomp.ask("SUBSCRIBE", {"id": "0", "destination": f"/topic/{TOPIC}", "ack": "auto"})
    yield "prague  subscribes with STOMP"
    world.zeromq.subscribe(TOPIC)
    yield "london  subscribes with ZeroMQ"
    world.http.call("POST", f"/v1/topics/{TOPIC}/subscriptions", {"name": "paris", "start": "earliest"})
    yield "paris   subscribes over HTTP"
    world.sql.rows(query("demo", "subscribe"), TOPIC)
    yield "rome    subscribes with SQL"


def publish(world: World) -> Iterator[str]:
    world.native.publish(TOPIC, NEWS["telesto"])
    yield f"native client  {NEWS['telesto']}"
    world.stomp.send("SEND", {"destination": f"/topic/{TOPIC}"}, NEWS["stomp"])
    # The receipt and the message of the subscription come in any order; the next step reads both.
    yield f"STOMP          {NEWS['stomp']}"
    _wait_for(world, 2)
    world.zeromq.put(TOPIC, NEWS["zeromq"])
    yield f"ZeroMQ         {NEWS['zeromq']}"
    world.http.call("POST", f"/v1/topics/{TOPIC}/messages", {"body": NEWS["http"]})
    yield f"HTTP           {NEWS['http']}"
    world.sql.rows(query("demo", "publish"), TOPIC, NEWS["sql"])
    yield f"SQL            {NEWS['sql']}"


def _wait_for(world: World, count: int) -> None:
    """Wait until the topic holds so many messages, because a SEND without a receipt is not answered."""
    while len(world.http.unread(TOPIC, "paris")) < count:
        world.http.call("GET", f"/v1/topics/{TOPIC}/partitions/1/messages?offset={count - 1}&wait=5")


def arrive(world: World) -> Iterator[str]:
    expected = list(NEWS.values())
    found = {
        "venice, native client": [entry.text for entry in _native(world, len(expected))],
        "prague, STOMP": [world.stomp.receive("MESSAGE")[1] for _ in expected],
        "london, ZeroMQ": [message.text for message in _zeromq(world, len(expected))],
        "paris, HTTP": world.http.unread(TOPIC, "paris"),
        "rome, SQL": [row[0] for row in world.sql.rows(query("demo", "read"), TOPIC)],
    }
    for who, got in found.items():
        if got != expected:
            raise AssertionError(f"{who} got {got} instead of {expected}")
        yield f"{who:<22} has all {len(got)}, in the same order; the last: {got[-1]}"
    world.native.confirm(TOPIC, "venice", 1, len(expected))
    world.http.call(
        "POST",
        f"/v1/topics/{TOPIC}/subscriptions/paris/confirm",
        {"positions": [{"partition": 1, "position": len(expected) - 2}]},
    )
    yield "venice confirms what it has read; paris confirms all but two, and lags behind"


def tribble(world: World) -> Iterator[str]:
    for user in ("galileo", "kepler"):
        world.tribbler.call("Tribserver.CreateUser", {"Userid": user})
    world.tribbler.call("Tribserver.AddSubscription", {"Userid": "kepler", "Targetuser": "galileo"})
    world.tribbler.call("Tribserver.PostTribble", {"Userid": "galileo", "Contents": TRIBBLE})
    reply = world.tribbler.call("Tribserver.GetTribblesBySubscription", {"Userid": "kepler"})
    yield f"Tribbler       kepler reads in his timeline: {reply['Tribbles'][0]['Contents']}"
    (entry,) = world.native.fetch("tribbles", limit=1)
    yield f"native client  the same tribble is entry {entry.offset} of the topic tribbles"
    read = world.http.call("GET", "/v1/topics/tribbles/partitions/1/messages?offset=0")["messages"]
    yield f"HTTP           the same again: {read[0]['body']}"


def queue(world: World) -> Iterator[str]:
    world.native.create_queue(QUEUE)
    world.native.put(QUEUE, "a bill from the glazier", priority=2)
    world.stomp.send("SEND", {"destination": f"/queue/{QUEUE}", "priority": "5"}, "a poem")
    world.http.call(
        "POST", f"/v1/queues/{QUEUE}/messages", {"body": "from the Grand Duke of Tuscany", "priority": 10}
    )
    yield "the glazier writes with priority 2, a poet (STOMP) with 5, the Grand Duke (HTTP) with 10"
    taken = world.http.call("POST", f"/v1/queues/{QUEUE}/take", {"limit": 1})["messages"]
    yield f"taken first, over HTTP: {taken[0]['body']}"
    for number in range(20):
        world.native.put(QUEUE, f"letter {number + 1} that waits to be read", priority=1 + number % 9)
    yield "twenty more stay in the queue, for the console to show"


def ask(world: World) -> Iterator[str]:
    world.native.create_queue("questions")
    answering = threading.Thread(target=_answer, args=(world,))
    answering.start()
    answer = world.native.request("questions", "How many moons?", timeout=20)
    answering.join()
    yield f"asked: How many moons?  answered: {answer.text}"


def _answer(world: World) -> None:
    from nuncius.client import Client

    with Client(f"nuncius://127.0.0.1:{world.ports['telesto']}", name="oracle") as oracle:
        question = oracle.take("questions", wait=20)
        if question is not None:
            oracle.reply(question, "four, so far")


def fail(world: World) -> Iterator[str]:
    peer = world.new_stomp("a clumsy clerk")
    peer.send("SUBSCRIBE", {"id": "1", "destination": f"/queue/{BROKEN}", "ack": "client-individual"})
    peer.send("SEND", {"destination": f"/queue/{BROKEN}"}, "one telescope, thirtyfold")
    for attempt in (1, 2):
        headers, body = peer.receive("MESSAGE")
        peer.send("NACK", {"id": headers["ack"]})
        yield f"attempt {attempt}: a clerk refuses {body!r}"
    history = _dead_letter(world)
    yield f"now it is a dead letter in dead/{BROKEN}, with its history in headers:"
    yield f"it failed {history['dead-attempts']} times in {history['dead-destination']}"
    yield "the console can move it back"


def _dead_letter(world: World) -> dict[str, str]:
    """Wait for the dead letter, which appears shortly after the last failed delivery. Return its headers."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with contextlib.suppress(NoHttpAnswer):  # its queue is created with the first dead letter
            found = world.http.call("GET", f"/v1/queues/dead%2F{BROKEN}/messages")["messages"]
            if found:
                headers: dict[str, str] = found[0]["headers"]
                return headers
        time.sleep(0.05)
    raise NoHttpAnswer("the message that no consumer took has not become a dead letter")


def _native(world: World, count: int) -> list[Entry]:
    entries: list[Entry] = []
    while len(entries) < count:
        entries += world.notes["native"].next_batch(timeout=20)
    return entries


def _zeromq(world: World, count: int) -> Iterator[PubSubMessage]:
    for _ in range(count):
        message = world.zeromq.get(TOPIC, wait=10)
        if message is None:
            return
        yield message


STEPS = (
    DemoStep(
        "Five readers subscribe to one topic",
        "A topic is a log that only grows. A subscription is a reader's durable place in it: it survives the "
        "reader, the node and the database. Whatever protocol a reader speaks, its place is the same kind of "
        "row in PostgreSQL.",
        "nuncius subscribe moons venice",
        subscribe,
    ),
    DemoStep(
        "A message through each way in",
        "Every door translates to the same few procedures. A message is acknowledged when PostgreSQL has "
        "committed it, never before. SQL is a way in, too: published inside your own transaction, a message "
        "is there if and only if that transaction commits.",
        "nuncius publish moons 'there are four'",
        publish,
    ),
    DemoStep(
        "The same messages arrive everywhere",
        "All readers see all messages, in the same order, without gaps. What a reader confirms will not come "
        "again; what it has not confirmed is its lag.",
        "nuncius topic subscriptions",
        arrive,
    ),
    DemoStep(
        "A tribble is a message, too",
        "The fifth door speaks Tribbler: users, whom they follow, and what they say. Each tribble is also an "
        "entry of the topic tribbles, in the same transaction.",
        "nuncius trib tp galileo 'They are moons!'",
        tribble,
    ),
    DemoStep(
        "A queue is read by priority",
        "A message of a queue is taken once, by one reader: the highest priority first, the oldest among "
        "equals. However many nodes read, none is taken twice and none is overlooked.",
        "nuncius put letters 'a poem' --priority 5",
        queue,
    ),
    DemoStep(
        "A question finds its answer",
        "A request carries a context that no other has; the answer with it goes to the client that asked.",
        "nuncius reply -n 1 questions printf four & nuncius request questions 'How many moons?'",
        ask,
    ),
    DemoStep(
        "What no consumer can take does not get lost",
        "A consumer that acknowledges may refuse. The message comes again after a while, and after so many "
        "attempts it is put aside as a dead letter with its history, where people can look at it, move it "
        "back, or let it go.",
        "nuncius status",
        fail,
    ),
)
