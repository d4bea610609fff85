"""`nuncius topic`: create and show topics and their subscriptions, and set retention."""

import shlex
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from nuncius.cli import amounts, output
from nuncius.cli.commands import removing
from nuncius.cli.connection import BROKER, BrokerOptions, Output, Yes, if_missing, run
from nuncius.cli.option_groups import Commands
from nuncius.cli.output import Format
from nuncius.client import AsyncClient, NotFound
from nuncius.client.model import SubscriptionState, TopicState

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]


class RetentionMode(StrEnum):
    FOREVER = "forever"
    SUBSCRIBERS = "subscribers"
    TIME = "time"
    SIZE = "size"


def register(app: typer.Typer) -> None:
    group = Commands(help="Make topics, look at them, empty and delete them.", no_args_is_help=True)
    group.command("list")(list_topics)
    group.command("show")(show)
    group.command("create")(create)
    group.command("grow")(grow)
    group.command("delete")(delete)
    group.command("purge")(purge)
    group.command("set-retention")(set_retention)
    group.command("subscriptions")(subscriptions)
    group.command("unsubscribe")(unsubscribe)
    app.add_typer(group, name="topic")


def advice(topic: str) -> str:
    """Advise what to do when there is no such topic."""
    return f"make it with: nuncius topic create {shlex.quote(topic)}"


async def existing(client: AsyncClient, name: str) -> TopicState:
    found = await client.topics(name)
    if not found:
        raise NotFound(f"there is no topic {name!r}; {advice(name)}")
    return found[0]


def list_topics(at: BrokerOptions = BROKER, form: Output = Format.TABLE) -> None:
    """List all topics."""

    async def work(client: AsyncClient) -> None:
        topics = await client.topics()
        if form is Format.JSON:
            output.write_document([document(topic) for topic in topics])
        else:
            write_topics(topics)

    run(work, at)


def document(topic: TopicState) -> dict[str, Any]:
    """Return a topic as a JSON document."""
    partitions = [
        msgspec.structs.asdict(partition) | {"entries": partition.entries} for partition in topic.partitions
    ]
    return msgspec.structs.asdict(topic) | {"partitions": partitions, "entries": topic.entries}


def write_topics(topics: list[TopicState]) -> None:
    output.write_table(
        ("topic", "partitions", "entries", "subscriptions", "retention"),
        [(t.name, len(t.partitions), t.entries, t.subscriptions, retention(t)) for t in topics],
        empty="there are no topics",
    )


def write_subscriptions(subscriptions: list[SubscriptionState]) -> None:
    output.write_table(
        ("topic", "subscriber", "lag", "confirmed", "holds retention"),
        [
            (s.topic, s.subscriber, s.lag, output.since(s.confirmed), "yes" if s.holds_retention else "no")
            for s in subscriptions
        ],
        empty="there are no subscriptions",
    )


def retention(topic: TopicState) -> str:
    if topic.retention_seconds is not None:
        return f"time {output.age(topic.retention_seconds)}"
    if topic.retention_bytes is not None:
        return f"size {output.size(topic.retention_bytes)}"
    return topic.retention


def show(name: Name, at: BrokerOptions = BROKER, form: Output = Format.TABLE) -> None:
    """Show one topic: its partitions, its retention and its subscriptions."""

    async def work(client: AsyncClient) -> None:
        topic = await existing(client, name)
        readers = await client.subscriptions(name)
        if form is Format.JSON:
            output.write_document(document(topic) | {"subscriptions": readers})
            return
        output.write_facts(
            {
                "topic": topic.name,
                "entries": topic.entries,
                "retention": retention(topic),
                "age": output.since(topic.created),
            }
        )
        output.write("")
        output.write_table(
            ("partition", "first offset", "next offset", "entries"),
            [(p.partition, p.first_offset, p.next_offset, p.entries) for p in topic.partitions],
            empty="",
        )
        output.write("")
        write_subscriptions(readers)

    run(work, at)


def create(
    name: Name,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="How many.")] = 1,
    at: BrokerOptions = BROKER,
    form: Output = Format.TABLE,
) -> None:
    """Make a topic. Publishing makes one too, with one partition."""

    async def work(client: AsyncClient) -> None:
        await client.create_topic(name, partitions=partitions)
        write_size(form, name, partitions)

    run(work, at)


def write_size(form: Format, name: str, partitions: int) -> None:
    plural = "" if partitions == 1 else "s"
    said = f"topic {output.printable(name)} has {partitions} partition{plural}"
    output.write_outcome(form, said, {"topic": name, "partitions": partitions})


def grow(
    name: Name,
    partitions: Annotated[int, typer.Argument(min=1, help="How many it has afterwards.")],
    at: BrokerOptions = BROKER,
    form: Output = Format.TABLE,
) -> None:
    """Add partitions to a topic. There is no way back, and keys may go to other partitions than before."""

    async def work(client: AsyncClient) -> None:
        with if_missing(advice(name)):
            await client.grow_topic(name, partitions)
        write_size(form, name, partitions)

    run(work, at)


def delete(name: Name, yes: Yes = False, at: BrokerOptions = BROKER, form: Output = Format.TABLE) -> None:
    """Delete a topic with its entries and its subscriptions."""
    call, contents = AsyncClient.delete_topic, "its entries and subscriptions"
    removing.delete(call, "topic", name, contents, yes=yes, at=at, form=form)


def purge(name: Name, yes: Yes = False, at: BrokerOptions = BROKER, form: Output = Format.TABLE) -> None:
    """Throw all entries of a topic away. Offsets go on from where they were."""
    call = AsyncClient.purge_topic
    removing.purge(call, "topic", name, "entries", advice(name), yes=yes, at=at, form=form)


def set_retention(
    name: Name,
    mode: Annotated[RetentionMode, typer.Argument(help="How long entries stay.")],
    amount: Annotated[
        str | None, typer.Argument(help="For time, as in 7d; for size a partition, as in 10GB.")
    ] = None,
    at: BrokerOptions = BROKER,
    form: Output = Format.TABLE,
) -> None:
    """Say how long entries stay: forever, until all subscribers have them, for a time, up to a size."""
    wants_amount = mode in (RetentionMode.TIME, RetentionMode.SIZE)
    if wants_amount != (amount is not None):
        complaint = "needs an amount" if wants_amount else "has no amount"
        raise typer.BadParameter(f"retention {mode.value!r} {complaint}", param_hint="AMOUNT")
    seconds = amounts.seconds(amount) if amount and mode is RetentionMode.TIME else None
    size = amounts.size(amount) if amount and mode is RetentionMode.SIZE else None

    async def work(client: AsyncClient) -> None:
        with if_missing(advice(name)):
            await client.set_retention(name, mode.value, seconds=seconds, bytes=size)
        topic = await existing(client, name)
        said = f"topic {output.printable(name)} keeps entries: {retention(topic)}"
        outcome = {"topic": name, "retention": mode.value, "seconds": seconds, "bytes": size}
        output.write_outcome(form, said, outcome)

    run(work, at)


def subscriptions(
    name: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Only this one's.")] = None,
    subscriber: Annotated[str | None, typer.Option(help="Only this subscriber's.")] = None,
    at: BrokerOptions = BROKER,
    form: Output = Format.TABLE,
) -> None:
    """List subscriptions and how far they are behind."""

    async def work(client: AsyncClient) -> None:
        if name is not None:
            await existing(client, name)
        found = await client.subscriptions(name, subscriber)
        if form is Format.JSON:
            output.write_document(found)
        else:
            write_subscriptions(found)

    run(work, at)


def unsubscribe(
    name: Name,
    subscriber: Annotated[str, typer.Argument(help="The subscriber's name.")],
    at: BrokerOptions = BROKER,
    form: Output = Format.TABLE,
) -> None:
    """End a subscription and forget its place."""
    what = f"{output.printable(subscriber)} to {output.printable(name)}"

    async def work(client: AsyncClient) -> None:
        await client.unsubscribe(name, subscriber)
        said = f"the subscription of {what} is ended"
        output.write_outcome(form, said, {"topic": name, "subscriber": subscriber, "ended": True})

    run(work, at)
