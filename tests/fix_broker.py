"""Fixtures for brokers in process, on the test's database."""

from collections.abc import AsyncIterator

import pytest

from nuncius.broker import Broker
from nuncius.broker.background import listener

NEVER = 3600.0


@pytest.fixture
def no_safety_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow look that makes up for missed news is switched off: what wakes a reader was a wake-up."""
    monkeypatch.setattr(listener, "LOOK_SECONDS", NEVER)


@pytest.fixture
async def broker(dsn: str, no_safety_net: None) -> AsyncIterator[Broker]:  # noqa: ARG001  (before it)
    """A broker on the test's database."""
    async with Broker(dsn, patience=20) as running:
        yield running


@pytest.fixture
async def second(dsn: str, broker: Broker) -> AsyncIterator[Broker]:  # noqa: ARG001  (beside it)
    """Another broker on the same database."""
    async with Broker(dsn, patience=20) as running:
        yield running
