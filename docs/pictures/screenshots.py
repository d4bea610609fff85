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
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import nuncius.testing
from nuncius.client import Client, Timeout
from nuncius.testing import Broker

HERE = Path(__file__).parent
BROWSER = Path(os.environ.get("NUNCIUS_BROWSER", HERE.parents[1] / ".browser" / "chromium"))
WATCHED_SECONDS = 125.0  # until the lines are full
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


@contextmanager
def life(broker: Broker) -> Iterator[None]:
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
        nuncius.testing.broker("--http-port=0", f"--ready-file={directory}/ready.json") as broker,
        sync_playwright() as playwright,
    ):
        port = json.loads(Path(directory, "ready.json").read_text())["ports"]["http"]
        base = f"http://127.0.0.1:{port}/console/"
        with broker.client() as client:
            fill(client)
        browser = playwright.chromium.launch(executable_path=BROWSER)
        page = browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme="light")
        with life(broker):
            picture(page, base, "", "console", WATCHED_SECONDS)
        browser.close()


if __name__ == "__main__":
    main()
