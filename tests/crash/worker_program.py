"""A program that works on a queue, in a process of its own, to be killed with a message in hand.

It says on stdout what it gets ("leased BODY ATTEMPTS") and what is settled for good ("settled BODY").
"""

import sys

from nuncius.client import Client


def main(url: str, queue: str) -> None:
    with Client(url) as client:
        for lease in client.leases(queue):
            with lease:
                say(f"leased {lease.message.text} {lease.attempts}")
            say(f"settled {lease.message.text}")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
