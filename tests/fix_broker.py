"""Fixtures for brokers in process, on the test's database."""

from collections.abc import AsyncIterator

import pytest

from nuncius.broker import Broker
from nuncius.broker.background import listener
from nuncius.broker.limits import Limits

NEVER = 3600.0


@pytest.fixture
def no_safety_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow look that makes up for missed news is switched off: what wakes a reader was a wake-up."""
    monkeypatch.setattr(listener, "LOOK_SECONDS", NEVER)


@pytest.fixture
def limits() -> Limits:
    """The limits of the test's brokers; a module may have others."""
    return Limits()


@pytest.fixture
async def broker(dsn: str, limits: Limits, no_safety_net: None) -> AsyncIterator[Broker]:  # noqa: ARG001  (before it)
    """A broker on the test's database."""
    async with Broker(dsn, limits=limits, patience=20) as running:
        yield running


@pytest.fixture
async def second(dsn: str, limits: Limits, broker: Broker) -> AsyncIterator[Broker]:  # noqa: ARG001  (beside it)
    """Another broker on the same database."""
    async with Broker(dsn, limits=limits, patience=20) as running:
        yield running
