"""Processes that tests start are measured, too. That makes them slow, and where they only do what other tests
have measured already, or end without a report, as the workers of Spark do, it is for nothing."""

import pytest

CONFIG = "COVERAGE_PROCESS_CONFIG"  # coverage measures a new process that has this in its environment


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this test starts is not measured."""
    monkeypatch.delenv(CONFIG, raising=False)
