# ruff: noqa: INP001 - a script, part of no package
"""Makes the picture of the console in this folder: `.venv/bin/python docs/pictures/screenshots.py`.

It needs a browser, which `.ci/browser` fetches; NUNCIUS_BROWSER names another. A node of its own is started,
filled with a little life for a while, and looked at.
"""

import json
import os
import random
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import nuncius.testing
from nuncius.cli.commands.demo.doors import HttpPeer, StompPeer
from nuncius.client import Client, Timeout
from nuncius.client.tribbler import TribblerClient
from nuncius.client.zeromq import PubSubClient
from nuncius.testing import Broker

HERE = Path(__file__).parent
BROWSER = Path(os.environ.get("NUNCIUS_BROWSER", HERE.parents[1] / ".browser" / "chromium"))
WATCHED_SECONDS = 125.0  # until the lines are full
DOORS = [f"--{door}-port=0" for door in ("stomp", "zeromq", "http", "tribbler")]
QUEUES = ("orders", "invoices", "mails", "thumbnails", "payments")
TOPICS = ("prices", "clicks", "weather", "audit")


def fill(client: Client) -> None:
    for queue in QUEUES:
        client.create_queue(queue)
    for topic in TOPICS:
        client.create_topic(topic, partitions=3)
        client.subscribe(topic, "archive", start="earliest")
    for n in range(400):
        client.put(QUEUES[n % 3], json.dumps({"order": n, "items": n % 7}), priority=1 + n % 10)


def through_other_doors(ports: dict[str, int], directory: Path, over: threading.Event) -> None:
    """What comes with STOMP, ZeroMQ, HTTP and Tribbler while the others live."""
    stomp = StompPeer(ports["stomp"], "weather-station")
    stomp.ask("SUBSCRIBE", {"id": "0", "destination": "/topic/weather", "ack": "auto"})
    http = HttpPeer(ports["http"])
    with (
        PubSubClient("press", f"tcp://127.0.0.1:{ports['zeromq']}", directory=directory) as zeromq,
        TribblerClient(f"127.0.0.1:{ports['tribbler']}") as tribbler,
    ):
        zeromq.subscribe("news")
        tribbler.call("Tribserver.CreateUser", {"Userid": "galileo"})
        for n in count():
            stomp.send("SEND", {"destination": "/topic/weather"}, f"{n % 30} degrees")
            while stomp.receive("MESSAGE")[1] != f"{n % 30} degrees":
                pass
            zeromq.put("news", f"headline {n}")
            zeromq.get("news", wait=1)
            http.call("POST", "/v1/queues/mails/messages", {"body": f"mail {n}"})
            http.call("POST", "/v1/queues/mails/take", {})
            if n % 5 == 0:
                tribbler.call("Tribserver.PostTribble", {"Userid": "galileo", "Contents": f"moon {n}"})
            if over.wait(0.1):
                stomp.close()
                return


@contextmanager
def life(broker: Broker, ports: dict[str, int], directory: Path) -> Iterator[None]:
    """Programs that publish, read, put and take, each at a pace of its own."""
    over = threading.Event()

    def live(number: int) -> None:
        dice = random.Random(number)  # noqa: S311 - no secret
        with broker.client(name=f"{QUEUES[number]}-desk") as client:
            while not over.wait(dice.uniform(0.001, 0.03)):
                queue, topic = dice.choice(QUEUES), dice.choice(TOPICS)
                for n in range(dice.randint(1, 8)):
                    client.publish(topic, json.dumps({"price": dice.randint(1, 99), "n": n}), key=str(n))
                client.put(queue, json.dumps({"order": dice.randint(1, 10**6)}), priority=dice.randint(1, 10))
                if dice.random() < 0.5:
                    client.take(queue)
                elif lease := client.lease(queue):
                    lease.settle()

    def read(topic: str) -> None:
        with (
            broker.client(name=f"{topic}-board") as client,
            client.subscribe(topic, "dashboard", start="earliest") as subscription,
        ):
            while not over.is_set():
                with suppress(Timeout):
                    subscription.confirm(subscription.next_batch(timeout=0.5)[-1])

    threads = [threading.Thread(target=live, args=(n,)) for n in range(4)]
    threads += [threading.Thread(target=read, args=(topic,)) for topic in TOPICS]
    threads.append(threading.Thread(target=through_other_doors, args=(ports, directory, over)))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def picture(page: Page, base: str, path: str, name: str, seconds: float = 4.0) -> None:
    page.goto(base + path)
    page.wait_for_timeout(1000 * seconds)
    page.screenshot(path=HERE / f"{name}.png")


def main() -> None:
    if not BROWSER.exists():
        sys.exit("no browser: .ci/browser fetches one, or NUNCIUS_BROWSER names one")
    with (
        tempfile.TemporaryDirectory() as directory,
        nuncius.testing.broker(*DOORS, f"--ready-file={directory}/ready.json") as broker,
        sync_playwright() as playwright,
    ):
        ports = json.loads(Path(directory, "ready.json").read_text())["ports"]
        base = f"http://127.0.0.1:{ports['http']}/console/"
        with broker.client() as client:
            fill(client)
        browser = playwright.chromium.launch(executable_path=BROWSER)
        page = browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme="light")
        with life(broker, ports, Path(directory)):
            picture(page, base, "", "console", WATCHED_SECONDS)
        browser.close()


if __name__ == "__main__":
    main()
