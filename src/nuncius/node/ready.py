"""Announce that a node is ready, to programs and to users.

The ready file is written, complete, when every listener accepts connections, and deleted when the node begins
to stop. Only its owner can read it. The address of the store in it has no password: a program that needs one
takes it, like libpq's programs, from PGPASSWORD or a password file. The embedded server needs none.

    {"pid": 4711, "store": "postgresql://...",
     "endpoints": {"telesto": {"host": "127.0.0.1", "port": 9001}, "stomp": null, ...},
     "ports": {"telesto": 9001, "stomp": null, ...}}

A listener that is off, or that this release does not have, is null.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from nuncius import __version__
from nuncius.node import logs
from nuncius.node.node import Endpoints, NodeError
from nuncius.store.address import shown, without_password

log = logging.getLogger(__name__)


class Ready(msgspec.Struct, frozen=True):
    """The content of the ready file."""

    pid: int
    store: str
    endpoints: Endpoints
    ports: dict[str, int | None]


class Announcement:
    """Write the ready file, and announce the node: to its parent process, on the terminal (a banner), or in
    the log."""

    def __init__(self, store: str, *, file: Path | None, data_dir: Path | None, on_leash: bool) -> None:
        self._store = store
        self._file = file
        self._place = shown(store) if data_dir is None else str(data_dir)
        self._on_leash = on_leash

    @contextmanager
    def __call__(self, endpoints: Endpoints) -> Iterator[None]:
        text = msgspec.json.encode(as_ready(self._store, endpoints)).decode()
        if self._file is not None:
            _write(self._file, text + "\n")
        try:
            if self._on_leash:
                sys.stdout.write(text + "\n")
                sys.stdout.flush()
            elif sys.stdout.isatty() and not logs.as_json():
                sys.stdout.write(banner(endpoints, self._place))
                sys.stdout.flush()
            else:
                log.info("ready", extra={"store": self._place, **addresses(endpoints)})
            yield
        finally:
            if self._file is not None:
                self._file.unlink(missing_ok=True)


def as_ready(store: str, endpoints: Endpoints) -> Ready:
    ports = {name: endpoint.port if endpoint else None for name, endpoint in endpoints.items()}
    return Ready(os.getpid(), without_password(store), endpoints, ports)


def addresses(endpoints: Endpoints) -> dict[str, str]:
    """Return the URLs for clients, by listener."""
    found = {}
    for name, endpoint in endpoints.items():
        if endpoint is not None:
            scheme = "nuncius" if name == "telesto" else name
            found[name] = f"{scheme}://{endpoint.host}:{endpoint.port}"
    if "http" in found:
        found["console"] = f"{found['http']}/console"
    return found


def banner(endpoints: Endpoints, place: str) -> str:
    lines = [f"Nuncius {__version__} is ready."]
    lines += [f"  {name:<9} {address}" for name, address in addresses(endpoints).items()]
    return "\n".join([*lines, f"  store     {place}", "Ctrl-C stops it.", ""])


def _write(file: Path, text: str) -> None:
    from nuncius.store.server import datadir

    try:
        datadir.write(file, text)
    except OSError as error:
        raise NodeError(f"cannot write the ready file {file} ({error.strerror})") from error
