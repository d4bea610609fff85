"""The jobs that come with Nuncius. Each is imported when it is used."""

import importlib

from nuncius.pipeline.errors import InvalidOption
from nuncius.pipeline.jobs.job import Job

# One module for each job, which is its `JOB`.
BUILT_IN = ("archive", "audit", "evaluate", "timelines", "trends")


def find(name: str) -> Job:
    """Find a job by its name."""
    if name not in BUILT_IN:
        raise InvalidOption(
            f"there is no job {name!r}: there are {', '.join(BUILT_IN)}, and --job for your own"
        )
    job: Job = importlib.import_module(f"{__name__}.{name}").JOB
    return job
