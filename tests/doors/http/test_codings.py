"""Compressed bodies: of requests within bounds, of answers when they are asked for."""

import gzip
import json
import tracemalloc
import zlib

import pytest

from doors.http.peer import Node, running_node
from nuncius.broker.limits import Limits
from nuncius.doors.http.connection.codings import INLINE, accepts_gzip
from nuncius.store.pressure import Holder
from racing import until

PATH = "/v1/topics/t/messages"
ONE = "/v1/topics/t/partitions/1/messages/0/raw"
GZIP = {"Content-Encoding": "gzip"}


async def test_a_compressed_request(node: Node) -> None:
    """It means what it means without compression, in both APIs; so does identity."""
    content = json.dumps({"body": "x" * 200_000}).encode()
    assert (await node.call("POST", PATH, gzip.compress(content), GZIP)).status == 201
    assert (await node.call("POST", PATH, content, {"Content-Encoding": "identity"})).status == 201
    assert (
        await node.call("POST", PATH, gzip.compress(content), {"Content-Encoding": "X-GZIP"})
    ).status == 201
    assert len((await node.get(ONE)).content) == 200_000
    fields = gzip.compress(json.dumps({"name": "A"}).encode())
    assert (await node.call("POST", "/topics", fields, GZIP)).status == 200


async def test_compressed_bytes(node: Node) -> None:
    """A raw body is stored as what it was before it was compressed."""
    assert (await node.call("POST", f"{PATH}/raw", gzip.compress(b"plain"), GZIP)).status == 201
    assert (await node.get(ONE)).content == b"plain"


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, gzip", "gzip; gzip", "zstd", "\xff"])
@pytest.mark.parametrize(("path", "status"), [(PATH, 415), (f"{PATH}/raw", 415), ("/topics", 400)])
async def test_other_codings(node: Node, path: str, status: int, coding: str) -> None:
    """They are refused, not stored; the report's API says so in its way."""
    peer = await node.connect()
    lines = "\r\n".join(f"Content-Encoding: {each}" for each in coding.split("; "))
    head = f"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n{lines}\r\n\r\nabc"
    peer.writer.write(head.encode("latin-1"))
    answer = await peer.answer()
    assert (answer.status, "gzip" in answer.json["message"]) == (status, True)
    peer.close()


@pytest.mark.parametrize(
    "body",
    [
        b"no gzip",
        gzip.compress(b"{}")[:-1],
        gzip.compress(b"{}") + b"x",
        b"\x1f\x8b",
        gzip.compress(b"{}") * 2,
    ],
)
async def test_what_is_no_gzip(node: Node, body: bytes) -> None:
    """A body that is not one whole stream is a 400."""
    answer = await node.call("POST", PATH, body, GZIP)
    assert (answer.status, "gzip" in answer.json["message"]) == (400, True)


@pytest.mark.parametrize(("path", "status"), [(PATH, 413), (f"{PATH}/raw", 413), ("/topics", 400)])
async def test_a_bomb(dsn: str, path: str, status: int) -> None:
    """A body that grows beyond what a request may have is given up on the way."""
    compressing = zlib.compressobj(9, wbits=31)
    bomb = b"".join(compressing.compress(bytes(1 << 20)) for _ in range(512)) + compressing.flush()
    assert len(bomb) < 1 << 20
    async with running_node(dsn, limits=Limits(max_body=1 << 20)) as node:
        tracemalloc.start()
        answer = await node.call("POST", path, bomb, GZIP)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (answer.status, "at most" in answer.json["message"]) == (status, True)
    assert peak < 40 << 20


async def test_room_for_what_grows(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size that a body grows to counts in the node's budget until the request is answered."""
    pressure, counted = node.broker.pressure, [0]
    hold = pressure.hold

    def counting_hold(holder: Holder, more: int) -> None:
        hold(holder, more)
        counted.append(pressure.held)

    monkeypatch.setattr(pressure, "hold", counting_hold)
    body = gzip.compress(json.dumps({"body": "x" * (6 << 20)}).encode())
    answer = await node.call("POST", PATH, body, GZIP)
    assert answer.status == 201
    assert max(counted) >= 6 << 20
    await until(lambda: pressure.level == 0)


@pytest.mark.parametrize("size", [2000, 4 * INLINE])
async def test_a_compressed_answer(node: Node, size: int) -> None:
    """An answer over 1 KB is compressed for a client that asks for it, and only for that."""
    await node.post(PATH, {"body": "x" * size})
    path = "/v1/topics/t/partitions/1/messages"
    plain = await node.get(path)
    assert "content-encoding" not in plain.headers
    assert plain.headers["vary"] == "Accept-Encoding"
    packed = await node.get(path, accept_encoding="deflate, gzip;q=0.8, br")
    assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert gzip.decompress(packed.content) == plain.content
    assert len(packed.content) < len(plain.content) / 4
    refused = await node.get(path, accept_encoding="gzip;q=0, identity")
    assert refused.content == plain.content


async def test_what_stays_as_it_is(node: Node) -> None:
    """Small answers, errors, and bytes that are no text are not compressed."""
    await node.post("/v1/topics/t/messages/raw", bytes(5000))
    await node.call("POST", f"{PATH}/raw", b"x" * 5000, {"Content-Type": "text/plain"})
    for path, is_packed in (
        ("/livez", False),
        ("/v1/topics", False),
        ("/v1/topics/" + "n" * 2000, False),
        ("/v1/topics/t/partitions/1/messages/0/raw", False),
        ("/v1/topics/t/partitions/1/messages/1/raw", True),
        ("/docs", True),
        ("/metrics", True),
        ("/v1/openapi.json", True),
        ("/openapi.json", True),
    ):
        answer = await node.get(path, accept_encoding="gzip")
        assert ("content-encoding" in answer.headers) is is_packed, path


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        ("*", True),
        ("br, gzip;q=0.001", True),
        ("gzip; q=1.0, identity; q=0.5", True),
        ("*;q=0.5, gzip;q=0", False),
        ("gzip;q=0", False),
        ("gzip;q=0.0", False),
        ("gzip;q=0.5, identity", False),
        ("identity", False),
        ("", False),
        ("br;q=1.0, deflate", False),
        ("gzip;q=much", False),
        ("*;q=0", False),
    ],
)
def test_what_a_client_accepts(header: str, accepted: bool) -> None:
    """Weights decide; a client that would rather have plain bytes gets them."""
    assert accepts_gzip(header) is accepted
