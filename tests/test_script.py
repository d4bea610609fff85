"""`./nuncius` runs from anywhere, sets itself up once, and says what it does."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STUB = "import sys\nprint('ran', *sys.argv[1:])\n"


def make_checkout(parent: Path) -> Path:
    root = parent / "a path with blanks"
    (root / "requirements").mkdir(parents=True)
    for lock in ("base", "build", "console", "dev", "spark"):
        (root / "requirements" / f"{lock}.txt").touch()
    (root / "src" / "nuncius").mkdir(parents=True)
    (root / "src" / "nuncius" / "__init__.py").touch()
    (root / "src" / "nuncius" / "__main__.py").write_text(STUB)
    (root / "src" / "nuncius" / "pipeline").mkdir()
    shutil.copy(ROOT / "src" / "nuncius" / "pipeline" / "compiled.py", root / "src" / "nuncius" / "pipeline")
    shutil.copy(ROOT / "nuncius", root / "nuncius")
    return root


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the script in a path with blanks, with locks that ask for nothing."""
    return make_checkout(tmp_path)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment set up once: making one takes seconds."""
    root = make_checkout(tmp_path_factory.mktemp("ready"))
    run(root / "nuncius")
    return root / ".venv"


@pytest.fixture
def ready(checkout: Path, environment: Path) -> Path:
    """A checkout after its first use."""
    shutil.copytree(environment, checkout / ".venv", symlinks=True)
    return checkout


def run(script: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a script from a foreign directory."""
    base = str(Path(sys.base_prefix) / "bin")
    variables = os.environ | {"PATH": path or f"{base}:{os.environ['PATH']}"}
    return subprocess.run(
        [str(script), *arguments],
        cwd="/",
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_first_use_and_later(checkout: Path) -> None:
    """The first use sets up and says so on stderr; later ones go straight to the command."""
    first = run(checkout / "nuncius", "up", "--flag", "a b")
    assert (first.returncode, first.stdout) == (0, "ran up --flag a b\n")
    assert [line.split()[1] for line in first.stderr.splitlines()] == ["making", "installing"]
    later = run(checkout / "nuncius", "up")
    assert (later.returncode, later.stdout, later.stderr) == (0, "ran up\n", "")


def test_through_a_link(ready: Path, tmp_path: Path) -> None:
    """A relative symbolic link to the script works like the script, from any directory."""
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / "nuncius"
    link.symlink_to(Path("..") / ready.name / "nuncius")
    assert run(link, "status").stdout == "ran status\n"


def test_moved_checkout(ready: Path, tmp_path: Path) -> None:
    """A checkout that was moved after its set-up still finds its own code."""
    moved = ready.rename(tmp_path / "moved")
    assert run(moved / "nuncius", "status").stdout == "ran status\n"


def test_changed_lock(ready: Path) -> None:
    """A changed lock file is installed again, once, into the same environment."""
    (ready / "requirements" / "base.txt").write_text("# changed\n")
    assert run(ready / "nuncius").stderr.startswith("nuncius: installing base")
    assert run(ready / "nuncius").stderr == ""


@pytest.mark.parametrize(
    ("command", "extras"),
    [
        ("console", ["console"]),
        ("demo", ["console"]),
        ("pipeline run", ["build", "spark"]),
        ("bench spark", ["build", "spark"]),
        ("bench core", []),
    ],
)
def test_extras_at_first_need(ready: Path, command: str, extras: list[str]) -> None:
    """A command that needs an extra installs it first and says so; others do not."""
    done = run(ready / "nuncius", *command.split())
    assert done.stdout == f"ran {command}\n"
    assert [line.split()[2].strip(",") for line in done.stderr.splitlines()] == extras


@pytest.mark.parametrize(
    ("lock", "command"),
    [
        ("base", "up"),
        ("console", "console"),
        ("build", "pipeline"),
        ("spark", "pipeline"),
        ("trace", "up --trace"),
    ],
)
def test_how_much_it_is(ready: Path, lock: str, command: str) -> None:
    """An installation says how much it downloads before it begins."""
    (ready / "requirements" / "trace.txt").touch()
    (ready / ".venv" / f"installed-{lock}").write_text("an older one")
    said = run(ready / "nuncius", *command.split()).stderr.splitlines()
    (line,) = [line for line in said if line.startswith(f"nuncius: installing {lock}, once (")]
    assert "to download" in line
    assert line.endswith("on disk)")


def test_failed_installation(ready: Path) -> None:
    """When an installation fails the command is not run, and the next use tries again."""
    lock = ready / "requirements" / "base.txt"
    lock.write_text("./does-not-exist.whl\n")
    failed = run(ready / "nuncius", "up")
    assert failed.returncode != 0
    assert failed.stdout == ""
    lock.write_text("")
    assert run(ready / "nuncius", "up").stdout == "ran up\n"


def test_two_first_uses_at_once(checkout: Path) -> None:
    """Of two first uses at once one sets up, and both run."""
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda name: run(checkout / "nuncius", name), ["one", "two"]))
    assert [one.stdout for one in done] == ["ran one\n", "ran two\n"]
    assert sum("making" in one.stderr for one in done) == 1


def test_a_place_where_nothing_can_be_made(checkout: Path) -> None:
    """Where the environment cannot be made the script says so, in a sentence."""
    (checkout / ".venv.lock").mkdir()
    done = run(checkout / "nuncius", "up")
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.startswith("nuncius: cannot set up beside this script")
    assert len(done.stderr.splitlines()) == 1


def test_no_python(checkout: Path, tmp_path: Path) -> None:
    """Without a suitable Python the script says what it needs."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "dirname", "cat", "cksum"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    (tools / "python3").write_text("#!/bin/sh\nexit 1\n")  # an old one fails the version check
    (tools / "python3").chmod(0o755)
    done = run(checkout / "nuncius", "up", path=str(tools))
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in done.stderr


def test_locks_name_no_address() -> None:
    """The lock files are good for any package index: hashes, and no address."""
    for lock in sorted((ROOT / "requirements").glob("*.txt")):
        text = lock.read_text()
        assert "://" not in text
        assert "--hash=sha256:" in text


def test_locks_agree() -> None:
    """One environment can hold every extra: no package is locked in two versions."""
    pins: dict[str, str] = {}
    for lock in sorted((ROOT / "requirements").glob("*.txt")):
        lines = [line for line in lock.read_text().splitlines() if "==" in line]
        for line in lines:
            name, rest = line.removesuffix(" \\").split("==", 1)
            version, _, marker = rest.partition(" ; ")
            assert pins.setdefault(f"{name} {marker}", version) == version
