"""Names are looked up once, and nobody overtakes who asked before."""

import asyncio

import pytest

from nuncius.broker.names import Names
from racing import until


class Directory:
    """A place where names are looked up; the test says when it answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.open = asyncio.Event()
        self.fails = False

    async def look_up(self, name: str) -> str:
        self.asked.append(name)
        await self.open.wait()
        if self.fails:
            raise LookupError(name)
        return name.upper()


@pytest.fixture
def directory() -> Directory:
    return Directory()


@pytest.fixture
def names(directory: Directory) -> Names[str]:
    return Names(directory.look_up)


async def test_looked_up_once(names: Names[str], directory: Directory) -> None:
    """Everybody who asks while a look-up is under way gets its answer; later ones get it at once."""
    asking = [asyncio.ensure_future(names.find("a")) for _ in range(3)]
    await asyncio.sleep(0)
    assert names.known("a") is None
    directory.open.set()
    assert await asyncio.gather(*asking) == ["A", "A", "A"]
    assert await names.find("a") == "A"
    assert names.known("a") == "A"
    assert directory.asked == ["a"]


async def test_in_order_of_asking(names: Names[str], directory: Directory) -> None:
    """Those who stand in line are called in their order, before anybody who comes later."""
    called: list[int] = []
    done = asyncio.Event()
    for n in range(3):
        names.when_known("a", lambda _, n=n: called.append(n))  # type: ignore[misc]
    names.when_known("a", lambda _: done.set())
    directory.open.set()
    await done.wait()
    names.when_known("a", lambda _: called.append(3))
    assert called == [0, 1, 2, 3]


async def test_a_failure_is_everybodys(names: Names[str], directory: Directory) -> None:
    """When a look-up fails all in line are told; the next one looks again."""
    directory.fails = True
    directory.open.set()
    both = await asyncio.gather(names.find("a"), names.find("a"), return_exceptions=True)
    assert [type(each) for each in both] == [LookupError, LookupError]
    directory.fails = False
    assert await names.find("a") == "A"
    assert directory.asked == ["a", "a"]


async def test_a_caller_that_fails_does_not_hurt_the_line(names: Names[str], directory: Directory) -> None:
    """If one in line raises, those behind it get their answer all the same."""

    def fail(_: object) -> None:
        raise ValueError("a mistake")

    names.when_known("a", fail)
    behind = asyncio.ensure_future(names.find("a"))
    await asyncio.sleep(0)
    directory.open.set()
    async with asyncio.timeout(60):
        assert await behind == "A"


async def test_forgetting(names: Names[str], directory: Directory) -> None:
    """What is forgotten is looked up again."""
    directory.open.set()
    await names.find("a")
    names.forget("a")
    names.forget("never known")
    assert names.known("a") is None
    await names.find("a")
    await names.find("b")
    names.forget_all()
    assert names.known("b") is None
    assert directory.asked == ["a", "a", "b"]


async def test_bounded(directory: Directory) -> None:
    """A node remembers so many names and no more."""
    directory.open.set()
    names = Names(directory.look_up, most=3)
    for name in "abcde":
        await names.find(name)
    assert [name for name in "abcde" if names.known(name)] == ["c", "d", "e"]


async def test_forgotten_while_it_is_looked_up(names: Names[str], directory: Directory) -> None:
    """An answer that was asked for before everything was forgotten may be outdated, and is not kept."""
    asking = asyncio.ensure_future(names.find("a"))
    await until(lambda: directory.asked)
    names.forget_all()
    directory.open.set()
    assert await asking == "A"
    assert names.known("a") is None
    assert await names.find("a") == "A"
    assert names.known("a") == "A"


async def test_a_look_up_that_is_outdated(names: Names[str], directory: Directory) -> None:
    """A name that is forgotten while it is looked up is looked up again for the callers in line."""
    early = asyncio.ensure_future(names.find("a"))
    await until(lambda: directory.asked == ["a"])
    names.forget("a")
    late = asyncio.ensure_future(names.find("a"))
    directory.open.set()
    assert list(await asyncio.gather(early, late)) == ["A", "A"]
    assert directory.asked == ["a", "a"]
    assert names.known("a") == "A"
