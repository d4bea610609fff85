"""Where the files of a lake lie: a directory, or a bucket of an object store.

Retention drops what is archived, so an archived entry must survive a power cut. Object stores see to that
themselves; in a directory we do.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from deltalake.fs import DeltaStorageHandler
from pyarrow import fs


def normal(location: str | Path) -> str:
    """A location as it is written down: an absolute path, or a URL."""
    text = str(location)
    parts = urlsplit(text)
    if parts.scheme == "file":
        text = unquote(parts.path)
    elif "://" in text:
        return text.rstrip("/")
    return str(Path(text).expanduser().absolute())


def is_local(location: str) -> bool:
    """Whether a normal location is a directory."""
    return "://" not in location


def filesystem(location: str, options: Mapping[str, str]) -> fs.FileSystem:
    """The files of a normal location, by paths within it."""
    if is_local(location):
        return fs.SubTreeFileSystem(location, fs.LocalFileSystem())
    return remote(location, options)


def remote(location: str, options: Mapping[str, str]) -> fs.FileSystem:
    """The same through deltalake, which takes the options of every object store that it knows."""
    return fs.PyFileSystem(DeltaStorageHandler(location, dict(options)))


def make_directory(location: str, name: str) -> None:
    """Makes a directory where there are directories."""
    if is_local(location):
        path = Path(location, name)
        if not path.exists():
            path.mkdir(parents=True, exist_ok=True)
            _sync(path.parent)


def make_durable(location: str, pattern: str) -> None:
    """Returns when the files that were written under such a name would be there after a power cut."""
    if is_local(location):
        for file in Path(location).glob(pattern):
            _sync(file)
        _sync(Path(location, pattern).parent)


def absent(location: str, options: Mapping[str, str], sizes: Mapping[str, int]) -> list[str]:
    """Which of these files, by paths within the location, are not there in that size."""
    found = filesystem(location, options).get_file_info(list(sizes))
    return [path for path, info in zip(sizes, found, strict=True) if info.size != sizes[path]]


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
