"""Fails a test that leaves an exception in a task or a future which no code looks at."""

import gc
import logging
from collections.abc import Iterator

import pytest

NEVER_RETRIEVED = "never retrieved"


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if NEVER_RETRIEVED in line:
            self.lines.append(line)


@pytest.fixture(autouse=True)
def exceptions_are_retrieved() -> Iterator[None]:
    """No task and no future of the test ends with an exception that is never retrieved."""
    heard = _Heard()
    logging.getLogger("asyncio").addHandler(heard)
    yield
    gc.collect(0)
    logging.getLogger("asyncio").removeHandler(heard)
    assert heard.lines == []
