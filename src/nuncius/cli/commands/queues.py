"""`nuncius queue`: create, show, browse, purge and delete queues."""

import shlex
from typing import Annotated

import msgspec
import typer

from nuncius.cli import output
from nuncius.cli.commands import removing
from nuncius.cli.connection import BROKER, BrokerOptions, Output, StreamOutput, Verbose, Yes, if_missing, run
from nuncius.cli.option_groups import Commands
from nuncius.cli.output import Format, StreamFormat
from nuncius.client import AsyncClient, NotFound
from nuncius.client.model import QueueState

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]


def register(app: typer.Typer) -> None:
    group = Commands(help="Make queues, look at them, empty and delete them.", no_args_is_help=True)
    group.command("list")(list_queues)
    group.command("show")(show)
    group.command("create")(create)
    group.command("delete")(delete)
    group.command("purge")(purge)
    group.command("browse")(browse)
    app.add_typer(group, name="queue")


def advice(queue: str) -> str:
    """Advise what to do when there is no such queue."""
    return f"make it with: nuncius queue create {shlex.quote(queue)}"


def list_queues(at: BrokerOptions = BROKER, form: Output = Format.TABLE) -> None:
    """List all queues, with what is in them."""

    async def work(client: AsyncClient) -> None:
        queues = await client.queues()
        if form is Format.JSON:
            output.write_document(queues)
        else:
            write_queues(queues)

    run(work, at)


def write_queues(queues: list[QueueState]) -> None:
    output.write_table(
        ("queue", "messages", "oldest"),
        [(queue.name, queue.depth, output.since(queue.oldest)) for queue in queues],
        empty="there are no queues",
    )


def show(name: Name, at: BrokerOptions = BROKER, form: Output = Format.TABLE) -> None:
    """Show one queue."""

    async def work(client: AsyncClient) -> None:
        found = await client.queues(name)
        if not found:
            raise NotFound(f"there is no queue {name!r}; {advice(name)}")
        (queue,) = found
        if form is Format.JSON:
            output.write_document(msgspec.structs.asdict(queue))
            return
        output.write_facts(
            {
                "queue": queue.name,
                "id": str(queue.queue_id),
                "messages": queue.depth,
                "oldest": output.since(queue.oldest),
            }
        )

    run(work, at)


def create(name: Name, at: BrokerOptions = BROKER, form: Output = Format.TABLE) -> None:
    """Make a queue."""

    async def work(client: AsyncClient) -> None:
        number = await client.create_queue(name)
        said = f"queue {output.printable(name)} has the id {number}"
        output.write_outcome(form, said, {"queue": name, "id": number})

    run(work, at)


def delete(name: Name, yes: Yes = False, at: BrokerOptions = BROKER, form: Output = Format.TABLE) -> None:
    """Delete a queue with everything in it."""
    call, contents = AsyncClient.delete_queue, "all its messages"
    removing.delete(call, "queue", name, contents, yes=yes, at=at, form=form)


def purge(name: Name, yes: Yes = False, at: BrokerOptions = BROKER, form: Output = Format.TABLE) -> None:
    """Throw all messages of a queue away."""
    call = AsyncClient.purge_queue
    removing.purge(call, "queue", name, "messages", advice(name), yes=yes, at=at, form=form)


def browse(
    name: Name,
    limit: Annotated[int, typer.Option("-n", min=1, help="How many at most.")] = 20,
    after: Annotated[int, typer.Option(min=0, help="Only messages after this id.")] = 0,
    verbose: Verbose = False,
    at: BrokerOptions = BROKER,
    form: StreamOutput = StreamFormat.TEXT,
) -> None:
    """Look at the messages of a queue, oldest first, without taking them."""

    async def work(client: AsyncClient) -> None:
        place, left = after, limit
        while left:
            with if_missing(advice(name)):
                found = await client.browse(name, after=place, limit=min(left, 1000))
            if not found:
                return
            output.write_messages(found, form, verbose=verbose)
            place = found[-1].message_id
            left -= len(found)

    run(work, at)
