"""A node with a consumer, in a process of its own, to be killed: it leases messages and settles them.

It says on stdout what it gets ("leased BODY ATTEMPTS") and what is settled for good ("settled BODY").
"""

import asyncio
import sys

from nuncius.broker import Broker, future


async def main(dsn: str, queue_id: int) -> None:
    async with Broker(dsn) as broker:
        while True:
            leased, done = future.new()
            broker.queues.lease_soon(queue_id, 0, done, limit=5, wait=60)
            for one in await leased:
                body = one.message.body.decode()
                say(f"leased {body} {one.attempts}")
                await broker.leases.settle([one.lease_id])
                say(f"settled {body}")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
