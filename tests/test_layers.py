"""The import table of DESIGN.md ("The house") holds for every module."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "nuncius"
FREE = {"__init__", "__main__", "testing"}  # they serve the user, not a layer
BELOW_ALL = {"limits"}  # every room may import it; it imports none
MAY_IMPORT: dict[str, set[str]] = {
    "store": set(),
    "broker": {"store"},
    "cluster": {"store", "broker"},
    "ring": {"store", "broker"},
    "wire": set(),
    "doors": {"broker", "cluster", "ring", "wire"},
    "node": {"store", "broker", "cluster", "ring", "doors", "wire"},
    "client": {"wire"},
    "pipeline": {"client", "store"},
    "console": {"broker", "cluster"},
    # Limits are measured in the engine and in the broker, a protocol's load speaks its protocol, and data for
    # a ring is put where the ring looks for it.
    "bench": {"client", "broker", "store", "doors", "pipeline", "cluster", "ring", "node", "wire"},
}
UNRESTRICTED = {"cli"}
# The client's classes for Telesto and ZeroMQ use the codecs of those listeners.
CODEC = re.compile(r"nuncius\.doors\.(?:telesto|zeromq)\.(\w*codec|table)")
IO = {"asyncio", "socket", "ssl", "selectors", "uvloop", "threading"}


def modules(source: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(source.rglob("*.py")):
        dotted = ".".join(path.relative_to(source.parent).with_suffix("").parts)
        yield path, dotted.removesuffix(".__init__")


def imports(path: Path, module: str, source: Path) -> Iterator[str]:
    """Every module a file imports, at its top or inside functions, by its full name."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = parts[: len(parts) - node.level + 1] if node.level else []
            origin = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                place = source.parent.joinpath(*inner.split("."))
                is_module = place.is_dir() or place.with_suffix(".py").exists()
                yield inner if is_module else origin


def violation(module: str, imported: str) -> str | None:
    """What is wrong with one import, or None."""
    layer, target = (f"{name}...".split(".")[1] for name in (module, imported))
    if layer in FREE | UNRESTRICTED | {""} or target in {"", layer}:
        return None if layer != "doors" else _across_doors(module, imported)
    if layer not in MAY_IMPORT.keys() | BELOW_ALL:
        return f"{module} is in no layer of the table"
    if target in BELOW_ALL:
        return None
    if layer == "client" and CODEC.fullmatch(imported):
        return None
    if target in MAY_IMPORT.get(layer, ()):
        return None
    return f"{module} must not import {imported}"


def _across_doors(module: str, imported: str) -> str | None:
    """A protocol does not lean on another protocol; what doors share lies in `doors` itself."""
    mine, other = (f"{name}...".split(".")[2] for name in (module, imported))
    is_protocol = (SOURCE / "doors" / other).is_dir() and other != ""
    if mine != other and is_protocol:
        return f"{module} must not import {imported}"
    return None


def violations(source: Path) -> list[str]:
    found = []
    for path, module in modules(source):
        for imported in imports(path, module, source):
            top = imported.split(".")[0]
            if top == "nuncius":
                problem = violation(module, imported)
            elif top == "pyspark" and module.split(".")[1] not in {"pipeline", "bench", "testing"}:
                problem = f"{module} must not import Spark"
            elif top in IO and (path.stem.endswith("codec") or module.startswith("nuncius.wire.")):
                problem = f"{module} is a codec and does no I/O, but imports {top}"
            else:
                problem = None
            if problem:
                found.append(problem)
    return found


def test_the_house_is_in_order() -> None:
    """No module imports from a layer it may not know."""
    assert violations(SOURCE) == []


@pytest.mark.parametrize(
    ("where", "code", "expected"),
    [
        (
            "store/pool.py",
            "import nuncius.broker",
            "nuncius.store.pool must not import nuncius.broker",
        ),
        ("broker/a.py", "def f():\n    from nuncius.doors import http", "nuncius.doors.http"),
        ("broker/b.py", "from ..cluster import ring", "nuncius.cluster.ring"),
        ("client/c.py", "from nuncius.store import errors", "nuncius.store.errors"),
        (
            "client/d.py",
            "from nuncius.doors.telesto.session import S",
            "nuncius.doors.telesto.session",
        ),
        ("doors/stomp/codec.py", "import asyncio", "does no I/O"),
        ("extra/e.py", "import nuncius.store", "in no layer"),
        ("limits.py", "import nuncius.store.names", "nuncius.limits must not import"),
        ("broker/f.py", "from pyspark.sql import SparkSession", "must not import Spark"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, where: str, code: str, expected: str) -> None:
    """An import that breaks the table is found, wherever it hides."""
    source = plant(tmp_path, {where: code})
    (problem,) = violations(source)
    assert expected in problem


def test_what_the_table_allows_is_accepted(tmp_path: Path) -> None:
    """Allowed imports, the client's codec and the free modules pass."""
    source = plant(
        tmp_path,
        {
            "client/a.py": "from nuncius.doors.telesto import codec\nimport nuncius\nimport nuncius.limits",
            "client/b.py": "from nuncius.wire.packets import P\nfrom . import a",
            "doors/http/door.py": "from nuncius.broker import x\nfrom nuncius.doors import listen",
            "cli/main.py": "import nuncius.store, nuncius.console",
            "testing.py": "import nuncius.store",
        },
    )
    assert violations(source) == []


def plant(parent: Path, files: dict[str, str]) -> Path:
    """A small tree like ours, with the given files in it."""
    source = parent / "nuncius"
    shape = ["broker/x.py", "cluster/ring.py", "store/errors.py", "doors/listen.py"]
    shape += [f"doors/{name}/codec.py" for name in ("http", "telesto", "stomp")]
    shape += ["wire/packets.py"]
    for name in ["__init__.py", *shape, *files]:
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files.get(name, ""))
    return source
