"""Repetition of work after a broken connection, the same for planning, reading and writing."""

from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

PATIENCE = 30.0  # seconds that a store may be unreachable
PAUSE = 0.1

T = TypeVar("T")


def patiently(work: Callable[[], T], broken: tuple[type[Exception], ...], drop: Callable[[], None]) -> T:
    """Do some work. If the connection breaks, drop it and repeat the work, until the store was unreachable
    for too long."""
    deadline = monotonic() + PATIENCE
    while True:
        try:
            return work()
        except broken:
            drop()
            if monotonic() > deadline:
                raise
        sleep(PAUSE)
