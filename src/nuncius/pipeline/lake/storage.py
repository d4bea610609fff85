"""The storage of a lake's files: a directory, or a bucket of an object store.

Retention drops archived entries from the store, so the lake must survive a power failure. Object stores
guarantee that; in a directory we flush to disk ourselves.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from deltalake.fs import DeltaStorageHandler
from pyarrow import fs


def normal(location: str | Path) -> str:
    """Normalise a location to an absolute path or a URL."""
    text = str(location)
    parts = urlsplit(text)
    if parts.scheme == "file":
        text = unquote(parts.path)
    elif "://" in text:
        return text.rstrip("/")
    return str(Path(text).expanduser().absolute())


def is_local(location: str) -> bool:
    """Return whether a normal location is a directory."""
    return "://" not in location


def filesystem(location: str) -> fs.FileSystem:
    """Open the file system of a normal location, with paths relative to it."""
    if is_local(location):
        return fs.SubTreeFileSystem(location, fs.LocalFileSystem())
    # Object stores are opened through deltalake, which finds their settings in the environment.
    return fs.PyFileSystem(DeltaStorageHandler(location))


def make_directory(location: str, name: str) -> None:
    """Create a directory, if the location is one; object stores need none."""
    if is_local(location):
        path = Path(location, name)
        if not path.exists():
            path.mkdir(parents=True, exist_ok=True)
            _sync(path.parent)


def make_durable(location: str, pattern: str) -> None:
    """Make written files that match the pattern survive a power failure."""
    if is_local(location):
        for file in Path(location).glob(pattern):
            _sync(file)
        _sync(Path(location, pattern).parent)


def absent(location: str, sizes: Mapping[str, int]) -> list[str]:
    """Return the paths of files, relative to the location, that do not exist with the given size."""
    found = filesystem(location).get_file_info(list(sizes))
    return [path for path, info in zip(sizes, found, strict=True) if info.size != sizes[path]]


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
