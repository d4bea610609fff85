"""Work in the background: nothing of it is lost, and its failures are in the log."""

import asyncio
import logging

import pytest

from nuncius.broker.background.tasks import BackgroundWork
from nuncius.store.errors import StoreUnavailable


async def fail(error: Exception) -> None:
    raise error


async def test_failures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """What the store refused is a line; a fault of ours comes with its traceback."""
    background = BackgroundWork()
    background.start(fail(StoreUnavailable("it is away")))
    background.start(fail(KeyError("x")))
    background.start(fail(ValueError("told")), reported=False).add_done_callback(
        lambda task: task.exception()
    )
    await background.drain()
    told = [(record.levelno, record.exc_info is not None) for record in caplog.records]
    assert told == [(logging.WARNING, False), (logging.ERROR, True)]


async def test_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    """Work that is cancelled ends without a word."""
    background = BackgroundWork()
    task = background.start(asyncio.Event().wait())
    background.cancel()
    await background.drain()
    assert task.cancelled()
    assert not caplog.records
