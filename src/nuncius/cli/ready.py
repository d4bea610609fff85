"""How a node says that it is ready, to programs and to people.

The ready file appears, complete, when every door accepts connections, and goes when the node begins to stop.
It is only for its owner's eyes, because the address of a store may hold a password:

    {"pid": 4711, "store": "postgresql://...",
     "endpoints": {"telesto": {"host": "127.0.0.1", "port": 9001}, "stomp": null, ...},
     "ports": {"telesto": 9001, "stomp": null, ...}}

A door that is closed, or that this release does not have, is null.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from nuncius import __version__
from nuncius.cli.node import Announce, Endpoints, NodeError


class Ready(msgspec.Struct, frozen=True):
    """What the ready file says."""

    pid: int
    store: str
    endpoints: Endpoints
    ports: dict[str, int | None]


class Announcement:
    """Writes the ready file, the line for the holder of a leash, and the banner on a terminal."""

    def __init__(self, store: str, *, file: Path | None, data_dir: Path | None, on_leash: bool) -> None:
        self._store = store
        self._file = file
        self._data_dir = data_dir
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
            elif sys.stdout.isatty():
                sys.stdout.write(banner(endpoints, self._data_dir))
                sys.stdout.flush()
            yield
        finally:
            if self._file is not None:
                self._file.unlink(missing_ok=True)


def announcement(store: str, *, file: Path | None, data_dir: Path | None, on_leash: bool = False) -> Announce:
    return Announcement(store, file=file, data_dir=data_dir, on_leash=on_leash)


def as_ready(store: str, endpoints: Endpoints) -> Ready:
    ports = {name: endpoint.port if endpoint else None for name, endpoint in endpoints.items()}
    return Ready(os.getpid(), store, endpoints, ports)


def banner(endpoints: Endpoints, data_dir: Path | None) -> str:
    lines = [f"Nuncius {__version__} is ready."]
    for name, endpoint in endpoints.items():
        if endpoint is not None:
            scheme = "nuncius" if name == "telesto" else name
            lines.append(f"  {name:<9} {scheme}://{endpoint.host}:{endpoint.port}")
    if (http := endpoints.get("http")) is not None:
        lines.append(f"  console   http://{http.host}:{http.port}/console")
    if data_dir is not None:
        lines.append(f"  data      {data_dir}")
    lines.append("Ctrl-C stops it.")
    return "\n".join(lines) + "\n"


def _write(file: Path, text: str) -> None:
    from nuncius.store import datadir

    try:
        datadir.write(file, text)
    except OSError as error:
        raise NodeError(f"cannot write the ready file {file} ({error.strerror})") from error
