"""The ring as a node sees it."""

from doors.http.peer import Node
from nuncius.doors.tribbler.door import TribblerDoor
from nuncius.ring.settings import RingSettings


async def test_ring(node: Node) -> None:
    """Its places, and the keys that others hold leases of; a node without a ring says so."""
    assert (await node.get("/v1/ring")).status == 404
    door = TribblerDoor(node.broker, RingSettings(count=1))
    try:
        port = await door.open("127.0.0.1", 0)
        storage = door._node.storage  # noqa: SLF001 - another node would ask like this
        await storage.put("a:b", "x")
        seen = (await node.get("/v1/ring")).json
        assert (seen["leases"], seen["hot_keys"], seen["version"]) == (0, [], 1)
        assert [place["node"] for place in seen["places"]] == [f"127.0.0.1:{port}"]
        await storage.read_for(False, ["a:b"], [True], "127.0.0.1:1")
        seen = (await node.get("/v1/ring")).json
        assert (seen["node"], seen["leases"], seen["hot_keys"]) == (f"127.0.0.1:{port}", 1, ["a:b"])
    finally:
        await door.close()
