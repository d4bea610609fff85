import pytest


@pytest.fixture(autouse=True)
def _unmeasured(unmeasured: None) -> None:
    """What is started here is measured by the tests of its parts."""
