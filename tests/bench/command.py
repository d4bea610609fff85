"""`nuncius bench` in this process, on a small scale."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from nuncius.cli.app import build


def bench(name: str, file: Path, *options: str) -> tuple[dict[str, Any], str]:
    """The document that a run writes to the file, and what it shows."""
    result = CliRunner().invoke(build(), ["bench", name, f"--json={file}", *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(file.read_text())
    assert document["name"] == name
    return document, result.stdout
