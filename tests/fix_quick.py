"""The option --quick leaves out tests that start processes, and further cases of parametrised tests."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent

# Tests that start nodes, servers, browsers or Spark, or measure time or memory, and rooms that change seldom.
# docs/contributing.md says so.
LEFT_OUT = (
    "bench/",
    "cli/",
    "cluster/",
    "console/",
    "crash/",
    "docs/",
    "models/",
    "pipeline/",
    "client/test_sync.py",
    "client/test_sync_leases.py",
    "client/test_zeromq_client.py",
    "doors/matrix/",
    "doors/test_",
    "doors/http/test_growth.py",
    "doors/http/test_outage.py",
    "doors/http/test_page.py",
    "doors/http/test_process.py",
    "doors/http/test_schema.py",
    "doors/http/test_workers.py",
    "doors/stomp/test_codec_fuzz.py",
    "doors/stomp/test_kills.py",
    "doors/stomp/test_page.py",
    "doors/stomp/test_trouble.py",
    "doors/telesto/test_bad_input.py",
    "doors/tribbler/",
    "doors/zeromq/test_page.py",
    "doors/zeromq/test_zmtp_codec.py",
    "store/test_account.py",
    "store/test_combiner.py",
    "store/test_connector.py",
    "store/test_embedded.py",
    "store/test_held_transaction.py",
    "store/test_pooler.py",
    "store/test_sql_drivers.py",
    "test_script.py",
    "test_testing.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="run a selection that takes about a minute")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    left_out = tuple(f"{TESTS}/{path}" for path in LEFT_OUT)
    if config.getoption("--quick") and f"{collection_path}/".startswith(left_out):
        return True
    return None  # other plugins may ignore it


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the first case of each test."""
    if not config.getoption("--quick"):
        return
    first: dict[str, pytest.Item] = {}
    for item in items:
        first.setdefault(item.nodeid.partition("[")[0], item)
    chosen = set(first.values())
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = first.values()
