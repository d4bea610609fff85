"""`nuncius cluster`: manage several nodes on one store."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from nuncius.cli import output
from nuncius.cli.connection import Output
from nuncius.cli.output import Format
from nuncius.cli.stores import one_store


def register(app: typer.Typer) -> None:
    commands = typer.Typer(help="Look after a cluster of nodes.", no_args_is_help=True)
    commands.command()(rebalance)
    app.add_typer(commands, name="cluster")


def rebalance(
    store: Annotated[
        str | None, typer.Option(metavar="DSN", help="The common store, instead of an embedded one.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="The data directory of the embedded common store.")
    ] = None,
    form: Output = Format.TABLE,
) -> None:
    """Spread partitions evenly over the brokers that are alive. Nodes do it by themselves, a minute after a
    broker came or went. No message moves: partitions in a broker's own store stay with it."""
    data_dir, store = one_store(data_dir, store)
    from nuncius.node import embedding, logs

    logs.configure()
    with embedding.opened(data_dir, store) as (dsn, _):
        moved = asyncio.run(_rebalance(dsn))
    said = f"Partitions that have another broker now: {moved:,}."
    output.write_outcome(form, said if moved else "The brokers have equal shares already.", {"moved": moved})


async def _rebalance(dsn: str) -> int:
    from nuncius.broker.observe.facts_cluster import SILENCE
    from nuncius.cli.database import connected
    from nuncius.store import migrations
    from nuncius.store.errors import StoreError
    from nuncius.store.queries import procedure

    async with connected(dsn) as connection:
        if await migrations.current(connection) != migrations.newest():
            raise StoreError("the schema of this store is older than this program: run nuncius migrate")
        moved: int = await connection.fetchval(procedure("rebalance_partitions", 1), SILENCE)
        return moved
