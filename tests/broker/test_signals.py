"""Wake-ups for readers of topics: none is missed between looking and waiting."""

import asyncio

from nuncius.broker.background.signals import Signals, news_before


async def test_what_came_before_waiting_is_not_missed() -> None:
    """A reader watches, looks, and waits: news in between return at once."""
    signals = Signals()
    with signals.watching(1) as news:
        signals.raise_for(1)
        await news.wait()


async def test_wakes_the_readers_of_that_topic() -> None:
    """News of a topic wake all its readers, and no others; its version goes up."""
    signals = Signals()
    version = signals.version(1), signals.version(2)
    with signals.watching(1) as one, signals.watching(1) as other, signals.watching(2) as unrelated:
        signals.raise_for(1)
        assert (one.is_set(), other.is_set(), unrelated.is_set()) == (True, True, False)
    assert (signals.version(1), signals.version(2)) == (version[0] + 1, version[1])


async def test_news_for_all() -> None:
    """News of everything, or of the catalogue, wake every reader and raise every version."""
    signals = Signals()
    catalogue, version = signals.catalogue, signals.version(2)
    for raise_for_all in (signals.raise_for_all, signals.raise_for_catalogue):
        with signals.watching(1) as news:
            raise_for_all()
            await news.wait()
    assert (signals.catalogue, signals.version(2)) == (catalogue + 1, version + 2)


async def test_time_out() -> None:
    """A reader that waits long enough is told that nothing came."""
    now = asyncio.get_running_loop().time()
    with Signals().watching(1) as news:
        assert not await news_before(now + 0.01, news)
        news.set()
        assert not await news_before(now, news), "without time there is one look"
        assert await news_before(now + 60, news)


async def test_leaves_nothing_behind() -> None:
    """Readers that end or are cancelled are forgotten."""
    signals = Signals()

    async def wait() -> None:
        with signals.watching(1) as news:
            await news.wait()

    waiting = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert signals._watching == {}  # noqa: SLF001
