"""Delete a queue or a topic, or its messages, after a confirmation."""

from collections.abc import Awaitable, Callable

from nuncius.cli import output
from nuncius.cli.connection import BrokerOptions, if_missing, make_sure, run
from nuncius.cli.output import Format
from nuncius.client import AsyncClient


def delete(
    call: Callable[[AsyncClient, str], Awaitable[None]],
    kind: str,
    name: str,
    contents: str,
    *,
    yes: bool,
    at: BrokerOptions,
    form: Format,
) -> None:
    """Delete a queue or a topic with its contents."""
    named = f"{kind} {output.printable(name)}"
    make_sure(f"Delete {named} with {contents}?", yes=yes)

    async def work(client: AsyncClient) -> None:
        await call(client, name)
        output.write_outcome(form, f"{named} is deleted", {kind: name, "deleted": True})

    run(work, at)


def purge(
    call: Callable[[AsyncClient, str], Awaitable[int]],
    kind: str,
    name: str,
    contents: str,
    advice: str,
    *,
    yes: bool,
    at: BrokerOptions,
    form: Format,
) -> None:
    """Delete the contents of a queue or a topic. Give advice if there is none of that name."""
    make_sure(f"Throw all {contents} of {kind} {output.printable(name)} away?", yes=yes)

    async def work(client: AsyncClient) -> None:
        with if_missing(advice):
            removed = await call(client, name)
        output.write_outcome(form, f"{removed:,} {contents} are gone", {kind: name, "removed": removed})

    run(work, at)
