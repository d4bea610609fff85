"""Python in zip files, with its compiled form beside it.

Spark's Python workers read PySpark, and on a cluster our own packages, from zip files. Python keeps no
compiled code for what it finds in those: each worker compiles everything anew, which takes longer than the
rest of its start. A Python of another version passes over what it cannot use and reads the source, which
zipfile.PyZipFile would leave out.

    python -m nuncius.pipeline.compiled

adds what is missing to the files of the PySpark that is installed here.
"""

import importlib.util
import marshal
import os
import warnings
import zipfile
from pathlib import Path

_UNCHECKED = (1).to_bytes(4, "little")  # stands for the source beside it, whatever the time of that


def write(archive: zipfile.ZipFile, name: str, source: bytes) -> None:
    """Adds a file; if it is Python, its compiled form as well."""
    archive.writestr(name, source)
    if name.endswith(".py"):
        with warnings.catch_warnings(action="ignore"):
            code = compile(source, name, "exec", dont_inherit=True)
        head = importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(source)
        archive.writestr(f"{name}c", head + marshal.dumps(code))


def complete(path: Path) -> None:
    """Gives an archive what it lacks. Whoever reads it meanwhile goes on with the one he has."""
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
