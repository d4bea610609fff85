"""The load of the STOMP benchmark and its figures."""

import asyncio
import io

import pytest
from rich.console import Console

from doors.stomp.threads import node_in_a_thread
from nuncius.bench import stomp
from nuncius.bench.load import stomp as stomp_load

# What a benchmark starts is measured elsewhere: doors by their tests, loads below.
pytestmark = pytest.mark.usefixtures("unmeasured")


def test_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run measures every figure, and the engine's own beside them."""
    monkeypatch.setattr(stomp, "FANOUT_MESSAGES", 20_000)
    monkeypatch.setattr(stomp, "ROUNDS", 1)
    monkeypatch.setattr(stomp, "BURST", 50)
    result = stomp.bench(Console(file=io.StringIO()), 0.2)
    assert result.figures.keys() == {
        *("send_receipt_256", "raw_append", "fanout", "slow_subscriber"),
        *("rss_slow_growth_mb", "queue", "connect_burst"),
    }
    assert min(value for name, value in result.figures.items() if name != "rss_slow_growth_mb") > 0
    assert {goal.name for goal in result.goals} <= result.figures.keys()


def test_the_loads(dsn: str) -> None:
    """Each load does what it says, also again."""
    amounts = {"send_receipt": 0.1, "fanout": 20, "slow": 20, "queue": 300, "burst": 20}
    assert amounts.keys() == stomp_load.LOADS.keys()
    with node_in_a_thread(dsn) as port:
        for _ in range(2):
            for name, amount in amounts.items():
                asyncio.run(measure(name, port, amount))


async def measure(name: str, port: int, amount: float) -> None:
    (figure,) = (await stomp_load.LOADS[name](port, amount)).values()
    assert figure > 0


def test_a_refusal_is_an_error(dsn: str) -> None:
    """A load that is refused measures nothing."""
    with node_in_a_thread(dsn) as port, pytest.raises(RuntimeError, match="a destination is"):
        asyncio.run(stomp_load.send_all(port, "/nonsense", 1))
