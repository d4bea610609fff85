"""A publisher and a subscriber as an application might write them, to be killed at any point.

python pubsub_programs.py publish URL DIRECTORY ID TOPIC HOW_MANY
python pubsub_programs.py subscribe URL DIRECTORY ID TOPIC HOW_MANY
"""

import os
import sys
from pathlib import Path

from nuncius.client.zeromq import PubSubClient

TIMEOUT = 0.5
TRIES = 200


def connect(url: str, directory: str, client_id: str) -> PubSubClient:
    return PubSubClient(client_id, url, directory=directory, timeout=TIMEOUT, tries=TRIES)


def publish(url: str, directory: str, client_id: str, topic: str, how_many: int) -> None:
    """Messages are numbered; what is stored already is not put again. Each also says which process put it; a
    file of that process has what was acknowledged to it."""
    acknowledged = Path(directory) / f"{client_id}-{os.getpid()}.acknowledged"
    with connect(url, directory, client_id) as client, acknowledged.open("wb", buffering=0) as file:
        for number in range(client.published(topic), how_many):
            text = f"{client_id} {number} {os.getpid()}"
            client.put(topic, text)
            file.write(f"{text}\n".encode())


def subscribe(url: str, directory: str, client_id: str, topic: str, how_many: int) -> None:
    """Writes a line a message, with its id, and leaves out what it has written already."""
    with (
        connect(url, directory, client_id) as client,
        (Path(directory) / f"{client_id}.txt").open("a+b") as file,
    ):
        file.seek(0)
        lines = file.read().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            file.truncate(sum(map(len, lines[:-1])))  # killed in the middle of a line
            lines.pop()
        written, last = len(lines), int(lines[-1].split()[0]) if lines else -1
        while written < how_many:
            with client.receive(topic, wait=0.5) as message:
                if message is not None and message.id > last:
                    file.write(b"%d %b\n" % (message.id, message.body))
                    file.flush()
                    os.fsync(file.fileno())
                    written, last = written + 1, message.id


if __name__ == "__main__":
    verb, url, directory, client_id, topic, how_many = sys.argv[1:]
    {"publish": publish, "subscribe": subscribe}[verb](url, directory, client_id, topic, int(how_many))
