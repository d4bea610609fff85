"""Compiled Python beside its source in zip files.

Spark's Python workers import PySpark, and on a cluster our own packages, from zip files. Python caches no
compiled code for them: each worker compiles everything anew, which takes longer than the rest of its start.
Another version of Python ignores compiled code that it cannot use and reads the source, which
zipfile.PyZipFile would leave out.

    python -m nuncius.pipeline.compiled

adds compiled code to the zip files of the installed PySpark.
"""

import importlib.util
import marshal
import os
import warnings
import zipfile
from pathlib import Path

_UNCHECKED = (1).to_bytes(4, "little")  # valid without a comparison with the source


def write(archive: zipfile.ZipFile, name: str, source: bytes) -> None:
    """Add a file and, if it is Python, its compiled code."""
    archive.writestr(name, source)
    if name.endswith(".py"):
        with warnings.catch_warnings(action="ignore"):
            code = compile(source, name, "exec", dont_inherit=True)
        head = importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(source)
        archive.writestr(f"{name}c", head + marshal.dumps(code))


def complete(path: Path) -> None:
    """Add compiled code to an archive that has none. Programs that have the old file open go on with it."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    with zipfile.ZipFile(path) as old:
        if any(name.endswith(".pyc") for name in old.namelist()):
            return
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as made:
            for name in old.namelist():
                write(made, name, old.read(name))
    new.replace(path)


def main() -> None:
    found = importlib.util.find_spec("pyspark")
    for place in (found and found.submodule_search_locations) or ():
        for path in Path(place, "python", "lib").glob("*.zip"):
            complete(path)


if __name__ == "__main__":
    main()
