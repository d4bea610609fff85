"""`nuncius migrate`: bring a database up to date, or print the script that does."""

import asyncio
from typing import Annotated

import typer

from nuncius.cli import output
from nuncius.cli.connection import Output
from nuncius.cli.output import Format
from nuncius.cli.stores import DataDir, Store, one_store


def register(app: typer.Typer) -> None:
    app.command()(migrate)


def migrate(
    store: Store = None,
    data_dir: DataDir = None,
    sql: Annotated[
        bool,
        typer.Option(
            "--sql",
            help="Print the script instead of running it: what is pending for the given "
            "store, or everything when none is given.",
        ),
    ] = False,
    form: Output = Format.TABLE,
) -> None:
    """Bring the schema of a store up to date. Nodes do that by themselves when they start."""
    data_dir, store = one_store(data_dir, store)
    from nuncius.node import embedding, logs
    from nuncius.store import migrations
    from nuncius.store.server.datadir import DataDirectory

    logs.configure()
    new = data_dir is not None and not DataDirectory(data_dir).is_ours
    if sql and store is None and (data_dir is None or new):
        typer.echo(migrations.pending_sql(), nl=False)
        return
    with embedding.opened(data_dir, store) as (dsn, _):
        if sql:
            typer.echo(asyncio.run(_pending(dsn)), nl=False)
        else:
            _tell(asyncio.run(_apply(dsn)), form)


async def _pending(dsn: str) -> str:
    from nuncius.cli.database import connected
    from nuncius.store import migrations

    async with connected(dsn) as connection:
        return migrations.pending_sql(await migrations.current(connection))


async def _apply(dsn: str) -> list[int]:
    from nuncius.cli.database import connected
    from nuncius.store import migrations

    async with connected(dsn) as connection:
        return await migrations.migrate(connection)


def _tell(applied: list[int], form: Format) -> None:
    from nuncius.store import migrations

    said = f"The schema is up to date, at version {migrations.newest()}."
    if applied:
        changes = "1 change" if len(applied) == 1 else f"{len(applied)} changes"
        said = f"Applied {changes}; the schema is now at version {applied[-1]}."
    output.write_outcome(form, said, {"applied": applied, "version": migrations.newest()})
