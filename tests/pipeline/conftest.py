"""One Spark session, and one cluster, for the whole run: starting them takes seconds."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fix_coverage import CONFIG
from nuncius.pipeline import session
from pipeline.cluster import Cluster, cluster

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with source and sink registered, whose workers find the functions of tests."""
    tests = str(Path(__file__).parents[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(CONFIG, raising=False)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH")])))
        started = session("local[2]", app="nuncius tests", settings=SETTINGS)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def sparks() -> Iterator[Cluster]:
    """A cluster; what is killed in it, it replaces."""
    with cluster() as running:
        yield running
