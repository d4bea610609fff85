"""The ring: hashes, owners, and what moves when a node comes."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from nuncius.ring.ring import SIZE, NodePlace, Ring, fnv1, group_of, hash_of, more_ids

VECTORS = {
    "bubble": 3835649095,
    "insertion": 1581790440,
    "merge": 2373009399,
    "heap": 3448274451,
    "quick": 1666346102,
    "radix": 2548238361,
    "dga": 412430291,
    "bryant": 1944341057,
}
NOBODYS = Ring([NodePlace(0, "nobody")])  # who is in another one has to hand over to this one all there is
ids = some.lists(some.integers(0, SIZE - 1), min_size=1, max_size=8, unique=True)


@pytest.mark.parametrize(("name", "hashed"), VECTORS.items())
def test_hashes(name: str, hashed: int) -> None:
    """FNV-1, of the part before the first colon only."""
    assert fnv1(name.encode()) == hashed
    assert hash_of(name) == hash_of(f"{name}:post-1") == hash_of(f"{name}:a:b") == hashed


def test_groups() -> None:
    """The part before the first colon, which may be nothing or all; any bytes have a hash."""
    assert [group_of(key) for key in ("a:b:c", ":x", "plain", "")] == ["a", "", "plain", ""]
    assert hash_of("") == hash_of(":x") == 2166136261
    assert hash_of("\udcff:x") == fnv1(b"\xff")


def test_owners() -> None:
    """The first id at or after the hash; after the highest id the lowest."""
    ring = Ring([NodePlace(19200, "n20"), NodePlace(10555, "n9")])
    owners = {hashed: ring.owner_of(hashed) for hashed in (0, 10555, 10556, 13232, 19200, 19201, SIZE - 1)}
    assert owners == {
        0: "n9",
        10555: "n9",
        10556: "n20",
        13232: "n20",
        19200: "n20",
        19201: "n9",
        SIZE - 1: "n9",
    }
    assert ring.nodes == ["n9", "n20"]
    assert ring.owner("dga:post-1") == "n9"


def test_an_id_belongs_to_one_node() -> None:
    """Who had an id first keeps it."""
    ring = Ring([NodePlace(7, "a"), NodePlace(7, "b")])
    assert ring.places == [NodePlace(7, "a")]
    assert ring.with_places([NodePlace(7, "c"), NodePlace(8, "c")]).places == [
        NodePlace(7, "a"),
        NodePlace(8, "c"),
    ]


def test_many_ids_share_better() -> None:
    """Ids that follow from a node's own are the same every time, and many of them even out the shares."""
    assert more_ids(7, 3) == more_ids(7, 3)
    assert more_ids(7, 1) == [7]
    assert len(set(more_ids(7, 100))) == 100

    def largest_share(count: int) -> float:
        ring = Ring([NodePlace(each, str(n)) for n in (11, 12, 13) for each in more_ids(n, count)])
        sizes = [sum(r.last - r.first + 1 for r, _ in ring.moved(NOBODYS, node)) for node in ring.nodes]
        assert sum(sizes) == SIZE
        return max(sizes) / SIZE

    assert largest_share(200) < 0.4 < largest_share(1)


@given(ids, ids)
def test_moves(before: list[int], added: list[int]) -> None:
    """What a node hands over is what it owned and does not own in the new ring, and nothing else."""
    ring = Ring([NodePlace(each, f"n{n % 3}") for n, each in enumerate(before)])
    new = ring.with_places([NodePlace(each, "new") for each in added])
    assert new.version == ring.version + 1
    borders = {0, SIZE - 1, *before, *added, *(each + 1 for each in (*before, *added) if each + 1 < SIZE)}
    for node in ring.nodes:
        moves = ring.moved(new, node)
        assert all(target == "new" for _, target in moves)
        for hashed in borders:
            moved = [target for stretch, target in moves if hashed in stretch]
            gone = ring.owner_of(hashed) == node and new.owner_of(hashed) != node
            assert moved == (["new"] if gone else [])
            owned = [stretch for stretch, _ in new.moved(NOBODYS, node) if hashed in stretch]
            assert bool(owned) == (new.owner_of(hashed) == node)
