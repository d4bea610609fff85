"""`nuncius tail`: the end of a topic, without a subscription."""

import asyncio
from typing import Annotated

import typer

from nuncius.cli import output
from nuncius.cli.commands.messages.topic import Topic
from nuncius.cli.commands.topics import existing
from nuncius.cli.connection import BROKER, BrokerOptions, StreamOutput, Verbose, run
from nuncius.cli.output import StreamFormat
from nuncius.client import AsyncClient, Entry, InvalidInput
from nuncius.client.model import PartitionState

PAGE = 1000
FOLLOW_SECONDS = 60.0


def register(app: typer.Typer) -> None:
    app.command()(tail)


def tail(
    topic: Topic,
    last: Annotated[int, typer.Option("-n", min=0, help="How many of the last entries.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    partition: Annotated[int | None, typer.Option(min=1, help="Only this partition.")] = None,
    verbose: Verbose = False,
    at: BrokerOptions = BROKER,
    form: StreamOutput = StreamFormat.TEXT,
) -> None:
    """Show the last entries of a topic. With --follow also those that come."""

    async def follow_one(client: AsyncClient, state: PartitionState) -> None:
        position = state.next_offset
        while True:
            entries = await client.fetch(topic, state.partition, position, PAGE, wait=FOLLOW_SECONDS)
            if entries:
                output.write_messages(entries, form, verbose=verbose)
                position = entries[-1].offset + 1

    async def work(client: AsyncClient) -> None:
        found = (await existing(client, topic)).partitions
        states = [p for p in found if partition in (None, p.partition)]
        if not states:
            raise InvalidInput(f"topic {topic!r} has no partition {partition}")
        ends = await asyncio.gather(*[_end(client, topic, state, last) for state in states])
        # Offsets order the entries of a partition; across partitions only the time of arrival can.
        entries = sorted(
            (entry for end in ends for entry in end), key=lambda e: (e.time_us, e.partition, e.offset)
        )
        output.write_messages(entries[-last:] if last else [], form, verbose=verbose)
        if follow:
            await asyncio.gather(*[follow_one(client, state) for state in states])

    run(work, at)


async def _end(client: AsyncClient, topic: str, state: PartitionState, last: int) -> list[Entry]:
    """Read the last entries of a partition, as of `state`."""
    position = max(state.first_offset, state.next_offset - last)
    entries: list[Entry] = []
    while position < state.next_offset:
        page = await client.fetch(topic, state.partition, position, min(PAGE, state.next_offset - position))
        if not page:
            break  # retention has removed them meanwhile
        entries += page
        position = page[-1].offset + 1
    return entries
