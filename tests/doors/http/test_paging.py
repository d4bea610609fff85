"""Lists in pages."""

import pytest

from doors.http.peer import Node

NAMES = ["B", "a", "a b", "a/b", "b", "c", "Ü"]


async def pages(node: Node, path: str, what: str, limit: int) -> list[list[str]]:
    found, after = [], ""
    while True:
        answer = (await node.get(f"{path}?limit={limit}&after={after}")).json
        found.append([each["name"] for each in answer[what]])
        if answer["next"] is None:
            return found
        assert answer["next"] == found[-1][-1]
        after = answer["next"].encode().hex(" ").replace(" ", "%")
        after = f"%{after}"


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/v1/topics", "topics"),
        ("/v1/queues", "queues"),
        ("/v1/topics/t/subscriptions", "subscriptions"),
    ],
)
async def test_pages(node: Node, path: str, what: str) -> None:
    """A list comes whole, or page by page: each goes on after the last name of the one before, and none is
    empty."""
    if "subscriptions" in path:
        await node.post("/v1/topics", {"name": "t"})
    for name in NAMES:
        assert (await node.post(path, {"name": name})).status == 201
    whole = (await node.get(path)).json
    names = [each["name"] for each in whole[what]]
    assert (sorted(names), whole["next"]) == (sorted(NAMES), None)
    assert await pages(node, path, what, 3) == [names[:3], names[3:6], names[6:]]
    assert await pages(node, path, what, 7) == [names]
    for wrong in ("limit=0", "limit=10001", "limit=x", f"after={'n' * 256}"):
        assert (await node.get(f"{path}?{wrong}")).status == 400
