"""Traffic through every door after the demonstration's story.

A user of the console may disconnect these clients or end their subscriptions. They connect again.
"""

import contextlib
import itertools
import random
import threading

from nuncius.cli.commands.demo.doors import StompPeer
from nuncius.cli.commands.demo.story import QUEUE, TOPIC
from nuncius.cli.commands.demo.world import World
from nuncius.client import NotFound, NunciusError, Timeout
from nuncius.client.tribbler import TribblerClient

PAUSE_SECONDS = 0.5  # between two observations
OBSERVATIONS = "observations"
LOST = (OSError, NunciusError)


def live(world: World, *, stop: threading.Event | None = None) -> None:
    """Send traffic until `stop` is set, so that rates and charts have something to show."""
    stop = stop or threading.Event()
    chance = random.Random(1610)  # noqa: S311 - a story, not a secret
    world.native.create_topic(OBSERVATIONS, partitions=3)
    for number in itertools.count(1):
        moon = chance.choice(("Io", "Europa", "Ganymede", "Callisto"))
        side = chance.choice(("east", "west"))
        text = f"observation {number}: {moon} {chance.uniform(1, 27):.1f} radii {side}"
        world.native.publish(OBSERVATIONS, text, key=moon)
        _prague(world, text)
        _london(world, text)
        _venice(world)
        _letters(world, f"about {moon}", chance)
        if number % 10 == 0:
            _galileo(world, text)
        if stop.wait(PAUSE_SECONDS):
            return


def _prague(world: World, text: str) -> None:
    """Publish with STOMP, and read the message back through the same client's subscription."""
    try:
        world.stomp.send("SEND", {"destination": f"/topic/{TOPIC}"}, text)
        while world.stomp.receive("MESSAGE")[1] != text:
            pass
    except LOST:
        world.stomp.close()
        world.stomp = StompPeer(world.ports["stomp"], "demo")
        world.closing.callback(world.stomp.close)
        world.stomp.ask("SUBSCRIBE", {"id": "0", "destination": f"/topic/{TOPIC}", "ack": "auto"})


def _london(world: World, text: str) -> None:
    """Read the topic with ZeroMQ, up to that message."""
    try:
        while (message := world.zeromq.get(TOPIC, wait=1)) is not None and message.text != text:
            pass
    except LOST:
        world.zeromq.subscribe(TOPIC)


def _venice(world: World) -> None:
    """Read the topic with the native client, and confirm."""
    subscription = world.notes["native"]
    try:
        with contextlib.suppress(Timeout):
            subscription.confirm(subscription.next_batch(timeout=1)[-1])
    except LOST:
        world.notes["native"] = world.native.subscribe(TOPIC, "venice")


def _letters(world: World, text: str, chance: random.Random) -> None:
    """Put a letter into the queue and consume about one: with a take, or with a lease that is settled."""
    try:
        world.native.put(QUEUE, text, priority=chance.randint(1, 10))
    except NotFound:
        world.native.create_queue(QUEUE)
    if chance.random() < 0.6:
        world.http.call("POST", f"/v1/queues/{QUEUE}/take", {})
    elif chance.random() < 0.9:
        lease = world.native.lease(QUEUE)
        if lease is not None:
            lease.settle()


def _galileo(world: World, text: str) -> None:
    """Post a tribble as galileo."""
    try:
        world.tribbler.call("Tribserver.PostTribble", {"Userid": "galileo", "Contents": text})
    except LOST:
        world.tribbler.close()
        world.tribbler = TribblerClient(f"127.0.0.1:{world.ports['tribbler']}")
        world.closing.callback(world.tribbler.close)
