"""One broker for the tests of a module, and commands in this process against it: starting one costs a third
of a second, and there are many."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

import nuncius.testing
from nuncius.cli import errors
from nuncius.cli.app import build
from nuncius.client import Client
from nuncius.testing import Broker


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str
    raw: bytes

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Commands:
    """Runs commands as `main` does."""

    def __init__(self, url: str) -> None:
        self._runner = CliRunner(env={"NUNCIUS_URL": url, "NUNCIUS_DEBUG": None})
        self._app = build()

    def __call__(self, *arguments: str, stdin: bytes | None = None) -> Done:
        result = self._runner.invoke(self._app, arguments, input=stdin, prog_name="nuncius")
        if result.exception is None or isinstance(result.exception, SystemExit):
            return Done(result.exit_code, result.stdout, result.stderr, result.stdout_bytes)
        said = f"nuncius: {errors.explain(result.exception)}\n"
        return Done(errors.exit_code(result.exception), result.stdout, said, result.stdout_bytes)

    def well(self, *arguments: str, stdin: bytes | None = None) -> list[str]:
        """The lines a command prints that must succeed without a word on stderr."""
        done = self(*arguments, stdin=stdin)
        assert (done.code, done.err) == (0, "")
        return done.lines


@pytest.fixture(scope="module")
def broker(module_dsn: str) -> Iterator[Broker]:
    with nuncius.testing.broker(store=module_dsn) as made:
        yield made


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with broker.client() as connected:
        yield connected


@pytest.fixture(scope="module")
def run(broker: Broker) -> Commands:
    return Commands(broker.url)
