"""What `nuncius bench spark` says before it measures."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from nuncius.bench import spark


@pytest.mark.parametrize("there", [True, False])
def test_without_the_driver(there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PostgreSQL's JDBC driver it says what is left out and how to get it."""
    driver = tmp_path / "postgresql.jar"
    if there:
        driver.touch()
    monkeypatch.setattr(spark, "DRIVER", driver)
    said = io.StringIO()
    spark.say_what_is_left_out(Console(file=said, width=40))
    assert ("apt install libpostgresql-jdbc-java" in said.getvalue()) is not there
    assert ("comparison with Spark's JDBC reader is left out" in said.getvalue()) is not there
