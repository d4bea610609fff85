"""One Spark session for the whole run: starting one takes seconds."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from nuncius.pipeline import session

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # Short-lived programs gain nothing from the second compiler and the parallel collector.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Duser.timezone=UTC",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with source and sink registered, whose workers find the functions of tests."""
    tests = str(Path(__file__).parents[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH")])))
        started = session("local[2]", app="nuncius tests", settings=SETTINGS)
    yield started
    started.stop()
