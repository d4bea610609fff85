"""`nuncius publish` and `nuncius subscribe`."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from nuncius.cli import output
from nuncius.cli.commands.sending import ProgressLine, send_all
from nuncius.cli.connection import BROKER, BrokerOptions, Output, StreamOutput, Verbose, run
from nuncius.cli.errors import NOTHING, complain
from nuncius.cli.input import Bodies, Files, Headers, Lines, check_sources, groups, parse_headers
from nuncius.cli.output import Format, StreamFormat
from nuncius.client import AsyncClient, NotFound, Receipt
from nuncius.client import Timeout as NothingCame

PREFETCH = 10_000

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]


class Start(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"


def register(app: typer.Typer) -> None:
    app.command()(publish)
    app.command()(subscribe)


def publish(
    topic: Topic,
    bodies: Bodies = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Entries of one key stay in order.")] = None,
    header: Headers = None,
    partition: Annotated[
        int, typer.Option(min=0, help="Into this partition; 0: the key or the broker decides.")
    ] = 0,
    file: Files = None,
    lines: Lines = False,
    publisher: Annotated[
        str, typer.Option(help="A name to count entries under; one is made up without it.")
    ] = "",
    at: BrokerOptions = BROKER,
    form: Output = Format.TABLE,
) -> None:
    """Publish entries to a topic. It is made if there is none of that name."""
    check_sources(bodies, lines=lines)
    headers = parse_headers(header)

    async def work(client: AsyncClient) -> None:
        progress = ProgressLine("published", wanted=lines)

        async def send(group: list[bytes]) -> Sequence[Receipt]:
            return await client.publish_batch(
                topic,
                group,
                keys=None if key is None else [key] * len(group),
                headers=None if headers is None else [headers] * len(group),
                partition=partition,
            )

        def stored(receipts: Sequence[Receipt]) -> None:
            for r in () if lines else receipts:
                if form is Format.JSON:
                    line = {"topic": topic, "partition": r.partition, "offset": r.offset}
                    output.write(output.json_line(line))
                else:
                    name = output.printable(topic)
                    output.write(f"topic {name}, partition {r.partition}, offset {r.offset}")

        await send_all(groups(bodies, file, lines=lines), send, stored, progress)
        if lines and form is Format.JSON:
            output.write(output.json_line({"topic": topic, "entries": progress.count}))
        elif lines:
            output.write(f"topic {output.printable(topic)}, {progress.count:,} entries")

    run(work, at, publisher=publisher)


def subscribe(
    topic: Topic,
    subscriber: Annotated[str, typer.Argument(help="A name to be known by the next time.")],
    start: Annotated[Start, typer.Option("--from", help="Where a new subscription begins.")] = Start.LATEST,
    number: Annotated[int | None, typer.Option("-n", min=1, help="End after so many.")] = None,
    wait: Annotated[
        float | None, typer.Option(min=0, help="End when nothing came for so many seconds.")
    ] = None,
    create: Annotated[
        bool, typer.Option("--create/--no-create", help="Whether to make the topic if there is none.")
    ] = True,
    confirm: Annotated[
        bool, typer.Option("--confirm/--no-confirm", help="Whether what was shown is done with.")
    ] = True,
    verbose: Verbose = False,
    at: BrokerOptions = BROKER,
    form: StreamOutput = StreamFormat.TEXT,
) -> None:
    """Read a topic and remember how far. The next time it goes on from there, until Ctrl-C."""
    wanted = number or sys.maxsize

    async def work(client: AsyncClient) -> int | None:
        shown = 0
        made = not await client.topics(topic)
        if made and not create:
            raise NotFound(f"there is no topic {topic!r}")
        subscription = await client.subscribe(
            topic, subscriber, start=start.value, auto_confirm=False, prefetch=min(wanted, PREFETCH)
        )
        if made:
            complain(f"made the topic {topic!r}, and waiting for messages (--no-create makes none)")
        async with subscription:
            while shown < wanted:
                try:
                    batch = await subscription.next_batch(wait)
                except NothingCame:
                    break
                batch = batch[: wanted - shown]
                output.write_messages(batch, form, verbose=verbose)
                shown += len(batch)
                if confirm:  # only after the output was written
                    await subscription.confirm(batch[-1])
        return None if shown else NOTHING

    run(work, at)
