"""The native codec: every packet comes back as it was, however its bytes are cut; garbage is told apart."""

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nuncius.wire import codec as native
from nuncius.wire.codec import PacketDecoder, ProtocolError, Unreadable
from nuncius.wire.packets import ANSWERS, REQUESTS, Packet, Ping, Publish

numbers = st.integers(-(2**63), 2**64 - 1)
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    int: numbers,
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    bytes: st.binary(max_size=40),
    bool: st.booleans(),
    type(None): st.none(),
}


def strategy(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a declared type."""
    if kind in SIMPLE:
        return SIMPLE[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return st.builds(kind, *(strategy(field.type) for field in msgspec.structs.fields(kind)))
    arguments = kind.__args__
    if kind.__class__.__name__ == "UnionType" or str(kind).startswith("typing.Union"):
        return st.one_of(*map(strategy, arguments))
    if kind.__origin__ is list:
        return st.lists(strategy(arguments[0]), max_size=4)
    assert kind.__origin__ is tuple, kind
    return st.tuples(*map(strategy, arguments))


any_request = st.one_of(*map(strategy, REQUESTS))
any_answer = st.one_of(*map(strategy, ANSWERS))
bounded = settings(max_examples=150, derandomize=True)


def received(decoder: PacketDecoder, data: bytes, cuts: list[int]) -> list[Any]:
    """What comes out when the bytes arrive in pieces."""
    ends = [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    found, at = [], 0
    for end in ends:
        found += list(decoder.receive(data[at:end]))
        at = end
    return found


@given(sent=st.lists(any_request, max_size=6), cuts=st.lists(st.integers(0, 10_000), max_size=12))
@bounded
def test_requests_round_trip(sent: list[Packet], cuts: list[int]) -> None:
    """Requests come out as they went in, wherever the bytes are cut."""
    data = b"".join(map(native.encode, sent))
    assert received(native.requests(), data, cuts) == sent


@given(sent=st.lists(any_answer, max_size=6), cuts=st.lists(st.integers(0, 10_000), max_size=12))
@bounded
def test_answers_round_trip(sent: list[Packet], cuts: list[int]) -> None:
    """So do answers."""
    data = b"".join(map(native.encode, sent))
    assert received(native.answers(), data, cuts) == sent


@pytest.mark.parametrize("kind", [*REQUESTS, *ANSWERS])
def test_every_packet_byte_by_byte(kind: type[Packet]) -> None:
    """Every packet of the table survives the worst cutting of all."""
    decoder = native.requests() if kind in REQUESTS else native.answers()

    @given(strategy(kind))
    @settings(max_examples=10, derandomize=True)
    def check(packet: Packet) -> None:
        data = native.encode(packet)
        found = [out for byte in data for out in decoder.receive(bytes([byte]))]
        assert found == [packet]

    check()


def test_tags_are_told_apart() -> None:
    """No two packets have the same method id; requests are odd and answers even."""
    requests = [kind.__struct_config__.tag for kind in REQUESTS]
    answers = [kind.__struct_config__.tag for kind in ANSWERS]
    assert len({*requests, *answers}) == len(requests) + len(answers)
    assert all(tag % 2 == 1 for tag in requests)  # type: ignore[operator]
    assert all(tag % 2 == 0 for tag in answers)  # type: ignore[operator]


def frame(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def test_missing_fields_have_defaults() -> None:
    """Fields with a default may be missing at the end, and unknown ones after it are ignored."""
    short = msgspec.msgpack.encode([0x11, 7, "news", [b"x"]])
    long = msgspec.msgpack.encode([0x03, 8, "from the future", {"a": 1}])
    assert list(native.requests().receive(frame(short) + frame(long))) == [
        Publish(7, "news", [b"x"]),
        Ping(8),
    ]


@pytest.mark.parametrize(
    ("payload", "request_id"),
    [
        (b"", 0),
        (b"\xc1", 0),
        (b"GET / HTTP/1.1", 0),
        (msgspec.msgpack.encode([]), 0),
        (msgspec.msgpack.encode({}), 0),
        (msgspec.msgpack.encode([0x03]), 0),
        (msgspec.msgpack.encode([0x03, "x"]), 0),
        (msgspec.msgpack.encode([0x03, 1.5]), 0),
        (msgspec.msgpack.encode([0x7F, 12]), 12),
        (msgspec.msgpack.encode([0x04, 12]), 12),
        (msgspec.msgpack.encode(["x", 12]), 12),
        (msgspec.msgpack.encode([0x11, 12, 13, [b"x"]]), 12),
        (msgspec.msgpack.encode([0x11, 12, "t", "x"]), 12),
        (msgspec.msgpack.encode([0x11, 12, "t", [b"x"]])[:-1], 0),
        (msgspec.msgpack.encode([0x03, 12]) + b"\x00", 0),
        (b"\x93\x11\x0c\xa2\xff\xfe", 0),
        (b"\x91" * 100_000, 0),
        (b"\x92\x03" + b"\x91" * 100_000, 0),
        (b"\xdd\xff\xff\xff\xff", 0),
        (b"\x92\x03\xc6\xff\xff\xff\xff", 0),
    ],
)
def test_unreadable_frames(payload: bytes, request_id: int) -> None:
    """A frame that is no packet of ours is told apart, with its request id if it has one."""
    first, second = native.requests().receive(frame(payload) + native.encode(Ping(99)))
    assert isinstance(first, Unreadable)
    assert first.request == request_id
    assert len(first.reason) <= 200
    assert second == Ping(99)


@given(st.binary(max_size=300), st.lists(st.integers(0, 400), max_size=5))
@bounded
def test_random_bytes(data: bytes, cuts: list[int]) -> None:
    """Whatever arrives, the codec yields packets, Unreadable, or a ProtocolError, and nothing else."""
    try:
        for packet in received(native.requests(), data, cuts):
            assert isinstance(packet, (Packet, Unreadable))
    except ProtocolError:
        pass


@given(st.binary(max_size=60))
@bounded
def test_random_payloads(payload: bytes) -> None:
    """A random payload in a good frame never disturbs the packet behind it."""
    found = list(native.requests().receive(frame(payload) + native.encode(Ping(5))))
    assert found[-1] == Ping(5)
    assert len(found) == 2


def test_oversized_frames() -> None:
    """A frame beyond the limit is refused by its length alone; one at the limit is read."""
    body = b"x" * 1000
    packet = Publish(1, "t", [body])
    size = len(native.encode(packet)) - 4
    assert list(native.requests(size).receive(native.encode(packet))) == [packet]
    with pytest.raises(ProtocolError, match="limit"):
        list(native.requests(size - 1).receive(native.encode(packet)[:4]))


def test_what_came_before_an_oversized_frame_is_delivered() -> None:
    """Packets before a frame that is too long are not lost."""
    with pytest.raises(ProtocolError) as caught:
        native.requests(100).receive(native.encode(Ping(1)) + struct.pack(">I", 101))
    assert caught.value.before == [Ping(1)]


def test_large_frames_in_small_pieces() -> None:
    """A large frame that arrives bit by bit costs work in proportion to its size."""
    packet = Publish(1, "t", [b"x" * (8 << 20)])
    data = native.encode(packet)
    decoder = native.requests()
    found = []
    for at in range(0, len(data), 4096):
        found += list(decoder.receive(data[at : at + 4096]))
    assert found == [packet]
