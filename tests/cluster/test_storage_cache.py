"""Keys in memory: bounded, forgotten in time, and never kept when they were outdated on the way."""

import pytest

from nuncius.ring.cache import Cache, Value


def keep(cache: Cache, key: str, value: Value, until: float = float("inf")) -> None:
    fill = cache.begin(key)
    cache.keep(fill, isinstance(value, list), value, until)
    cache.end(fill)


def test_memory_is_bounded() -> None:
    """However much is kept, the memory for it has a limit; what was not used for longest goes first."""
    cache = Cache(10_000)
    for n in range(1000):
        keep(cache, f"k{n}", "x" * 100)
        cache.find(False, "k0")
        assert cache.bytes <= 10_000
    assert cache.find(False, "k999") == "x" * 100
    assert cache.find(False, "k0") == "x" * 100
    assert cache.find(False, "k500") is None
    for n in range(1000):
        cache.drop(f"k{n}")
    assert cache.bytes == 0


@pytest.mark.parametrize("value", ["x" * 5000, ["x" * 100] * 50])
def test_what_is_too_large(value: Value) -> None:
    """One value does not push everything else out."""
    cache = Cache(10_000)
    keep(cache, "small", "x")
    keep(cache, "large", value)
    assert cache.find(isinstance(value, list), "large") is None
    assert cache.find(False, "small") == "x"


def test_no_memory_at_all() -> None:
    """A cache without memory keeps nothing."""
    cache = Cache(0)
    keep(cache, "k", "")
    assert cache.find(False, "k") is None


def test_values_and_lists() -> None:
    """A key's value and its list are kept apart, and dropped together."""
    cache = Cache(10_000)
    keep(cache, "k", "v")
    keep(cache, "k", ["i"])
    keep(cache, "k", "w")
    assert (cache.find(False, "k"), cache.find(True, "k")) == ("w", ["i"])
    cache.drop("k")
    assert (cache.find(False, "k"), cache.find(True, "k"), cache.bytes) == (None, None, 0)


def test_what_ends() -> None:
    """An entry with a lease is there until its moment, and not at it."""
    cache = Cache(10_000)
    keep(cache, "k", "v", until=5.0)
    assert cache.find(False, "k", 4.99) == "v"
    assert cache.find(False, "k", 5.0) is None
    assert cache.bytes == 0


@pytest.mark.parametrize("how", ["drop", "close", "clear"])
def test_what_is_outdated_on_its_way(how: str) -> None:
    """A look-up that began before its key was dropped is not kept; one that began afterwards is."""
    cache = Cache(10_000)
    early = cache.begin("k")
    if how == "drop":
        cache.drop("k")
    elif how == "clear":
        cache.clear()
    else:
        cache.close("k")
        assert cache.begin("k").spoiled
        cache.open("k")
    late = cache.begin("k")
    cache.keep(early, False, "old")
    assert cache.find(False, "k") is None
    cache.keep(late, False, "new")
    assert cache.find(False, "k") == "new"
    cache.end(early)
    cache.end(late)


def test_closed_as_often_as_opened() -> None:
    """While somebody still changes a key, nothing of it is kept."""
    cache = Cache(10_000)
    cache.close("k")
    cache.close("k")
    cache.open("k")
    keep(cache, "k", "v")
    assert cache.find(False, "k") is None
    cache.open("k")
    keep(cache, "k", "v")
    assert cache.find(False, "k") == "v"
