"""`nuncius put` and `nuncius take`."""

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from nuncius.cli import output
from nuncius.cli.commands.queues import advice
from nuncius.cli.commands.sending import ProgressLine, send_all
from nuncius.cli.connection import BROKER, BrokerOptions, Output, StreamOutput, Verbose, if_missing, run
from nuncius.cli.errors import NOTHING
from nuncius.cli.input import Bodies, Files, Headers, Lines, check_sources, groups, parse_headers
from nuncius.cli.output import Format, StreamFormat
from nuncius.client import AsyncClient, Message, PutReceipt

AT_ONCE = 100
FOLLOW_SECONDS = 60.0

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
As = Annotated[str, typer.Option("--as", metavar="NAME", help="Be this client, to send or receive by name.")]


def register(app: typer.Typer) -> None:
    app.command()(put)
    app.command()(take)


def put(
    queue: Queue,
    bodies: Bodies = None,
    priority: Annotated[int, typer.Option("--priority", "-p", min=1, max=10, help="10 is taken first.")] = 5,
    receiver: Annotated[
        str | None, typer.Option(help="The name of the client who alone may take it.")
    ] = None,
    header: Headers = None,
    file: Files = None,
    lines: Lines = False,
    name: As = "",
    at: BrokerOptions = BROKER,
    form: Output = Format.TABLE,
) -> None:
    """Put messages into a queue."""
    check_sources(bodies, lines=lines)
    headers = parse_headers(header)

    async def work(client: AsyncClient) -> None:
        to = 0
        if receiver is not None:
            with if_missing("a client exists once it was connected: nuncius take ... --as NAME"):
                to = await client.find_client(receiver)
        progress = ProgressLine("put", wanted=lines)

        async def send(group: list[bytes]) -> Sequence[PutReceipt]:
            return await asyncio.gather(
                *[client.put(queue, body, priority=priority, receiver=to, headers=headers) for body in group]
            )

        def stored(receipts: Sequence[PutReceipt]) -> None:
            for receipt in () if lines else receipts:
                number = receipt.message_ids[0] if receipt.message_ids else None
                if form is Format.JSON:
                    output.write(output.json_line({"queue": queue, "id": number}))
                else:
                    output.write(f"queue {output.printable(queue)}, message {number}")

        with if_missing(advice(queue)):
            await send_all(groups(bodies, file, lines=lines), send, stored, progress)
        if lines and form is Format.JSON:
            output.write(output.json_line({"queue": queue, "messages": progress.count}))
        elif lines:
            output.write(f"queue {output.printable(queue)}, {progress.count:,} messages")

    run(work, at, name=name)


def take(
    queue: Queue,
    number: Annotated[
        int | None, typer.Option("-n", min=1, help="How many; one, or with --follow no end.")
    ] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for messages.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    by_time: Annotated[
        bool, typer.Option("--by-time", help="The oldest first, whatever its priority.")
    ] = False,
    name: As = "",
    verbose: Verbose = False,
    at: BrokerOptions = BROKER,
    form: StreamOutput = StreamFormat.TEXT,
) -> None:
    """Take messages out of a queue. The highest priority comes first, the oldest of those."""
    if follow and wait:
        raise typer.BadParameter("wait for some time, or follow for ever", param_hint="--wait")
    mode = "time" if by_time else "priority"
    until = None if follow else time.monotonic() + wait
    wanted = number or (sys.maxsize if follow else 1)
    # A take removes messages from the queue: take no more at once than was asked for.
    at_once = min(number or 1, AT_ONCE)

    async def some(client: AsyncClient, limit: int) -> list[Message]:
        while True:
            left = FOLLOW_SECONDS if until is None else max(0.0, until - time.monotonic())
            with if_missing(advice(queue)):
                found = await client.take_batch(queue, limit, wait=min(left, FOLLOW_SECONDS), mode=mode)
            if found or left < FOLLOW_SECONDS:
                return found

    async def work(client: AsyncClient) -> int | None:
        taken = 0
        while taken < wanted:
            found = await some(client, min(at_once, wanted - taken))
            if not found:
                break
            output.write_messages(found, form, verbose=verbose)
            taken += len(found)
        return None if taken else NOTHING

    run(work, at, name=name)
