"""Wake-ups for readers of topics: none is missed between looking and waiting."""

import asyncio

from nuncius.broker.background.signals import Signals


async def test_what_came_before_waiting_is_not_missed() -> None:
    """A reader notes the version, looks, and waits: news in between return at once."""
    signals = Signals()
    version = signals.version(1)
    signals.raise_for(1)
    assert await signals.wait(1, version, 10)


async def test_wakes_the_readers_of_that_topic() -> None:
    """News of a topic wake its readers, all of them, and nobody else."""
    signals = Signals()
    mine = [asyncio.ensure_future(signals.wait(1, 0, None)) for _ in range(3)]
    others = asyncio.ensure_future(signals.wait(2, 0, None))
    await asyncio.sleep(0)
    signals.raise_for(1)
    assert await asyncio.gather(*mine) == [True, True, True]
    assert not others.done()
    others.cancel()


async def test_news_for_all() -> None:
    """News of everything, or of the catalogue, wake everybody, also who begins to wait later."""
    signals = Signals()
    version = signals.version(2)
    waiting = asyncio.ensure_future(signals.wait(1, signals.version(1), None))
    await asyncio.sleep(0)
    signals.raise_for_all()
    assert await waiting
    assert await signals.wait(2, version, 10)
    before = signals.catalogue
    version = signals.version(3)
    signals.raise_for_catalogue()
    assert signals.catalogue != before
    assert await signals.wait(3, version, 10)


async def test_time_out() -> None:
    """A reader that waits long enough is told that nothing came."""
    signals = Signals()
    assert not await signals.wait(1, signals.version(1), 0.01)


async def test_leaves_nothing_behind() -> None:
    """Readers that give up or are cancelled are forgotten."""
    signals = Signals()
    await signals.wait(1, 0, 0.01)
    waiting = asyncio.ensure_future(signals.wait(1, 0, None))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert signals._waiting == {}  # noqa: SLF001
