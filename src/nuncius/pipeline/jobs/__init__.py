"""The jobs that come with Nuncius. Each is imported when it is asked for."""

import importlib

from nuncius.pipeline.errors import InvalidOption
from nuncius.pipeline.jobs.job import Job

# A module a job, with the job as `JOB`.
BUILT_IN = ("archive", "audit", "evaluate", "timelines", "trends")


def find(name: str) -> Job:
    """A job by its name."""
    if name not in BUILT_IN:
        raise InvalidOption(
            f"there is no job {name!r}: there are {', '.join(BUILT_IN)}, and --job for your own"
        )
    job: Job = importlib.import_module(f"{__name__}.{name}").JOB
    return job
