"""The choice of a command's store, by the same rules for every command."""

from pathlib import Path
from typing import Annotated

import typer

from nuncius.store import environment
from nuncius.store.address import shown

Store = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="DSN", help="The database, instead of the embedded one. Default: $NUNCIUS_STORE."
    ),
]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="The data directory of the embedded PostgreSQL.")
]


def one_store(
    data_dir: Path | None, store: str | None, option: str = "--data-dir"
) -> tuple[Path | None, str | None]:
    """Choose the data directory of the embedded server or the address of a PostgreSQL: from the options, else
    from the environment. (None, None) means the default data directory."""
    if store is not None and data_dir is not None:
        other = "--store" if option == "--data-dir" else "-store"
        raise typer.BadParameter(f"give {option} or {other}, not both", param_hint=other)
    named = environment.value(environment.STORE)
    if named is None or store is not None:
        return data_dir, store
    if data_dir is not None:
        _say(f"{option} goes before ${environment.STORE}: the store is in {data_dir}, not at {shown(named)}")
        return data_dir, None
    if environment.value(environment.DATA_DIR) is not None:
        _say(f"${environment.STORE} goes before ${environment.DATA_DIR}: the store is at {shown(named)}")
    return None, named


def _say(text: str) -> None:
    from nuncius.cli.errors import complain

    complain(text)
