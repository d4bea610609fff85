"""The gob codec reads what Go writes, writes what Go reads, and survives what nobody should write."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from doors.tribbler import captures
from nuncius.doors.tribbler import gob_decoder_codec
from nuncius.doors.tribbler import gob_wire_codec as wire
from nuncius.doors.tribbler.gob_codec import Encoder, Uint
from nuncius.doors.tribbler.gob_decoder_codec import GobDecoder
from nuncius.doors.tribbler.gob_wire_codec import GobError, Mismatch
from nuncius.doors.tribbler.rpc_codec import InvalidRequest, Response, RpcRequest
from nuncius.doors.tribbler.storage_messages import (
    Client,
    GetArgs,
    GetListReply,
    GetReply,
    LeaseStruct,
    RegisterReply,
    RpcStruct,
)
from nuncius.doors.tribbler.tribserver_messages import GetTribblesReply, Tribble


class Point(msgspec.Struct):
    x: int = msgspec.field(name="X", default=0)
    y: int = msgspec.field(name="Y", default=0)


class Numbers(msgspec.Struct, rename="pascal"):
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    e: int = 0
    f: int = 0
    u: Uint = 0
    g: float = 0.0
    h: bool = False


class Everything(msgspec.Struct, rename="pascal"):
    truth: bool = False
    number: int = 0
    natural: Uint = 0
    real: float = 0.0
    data: bytes = b""
    text: str = ""
    point: Point = msgspec.field(default_factory=Point)
    points: list[Point] = []
    texts: list[str] = []
    naturals: list[Uint] = []
    matrix: list[list[int]] = []


def received(data: bytes, *kinds: type[msgspec.Struct], step: int = 0) -> list[msgspec.Struct]:
    """What a decoder makes of the bytes, in pieces of that size."""
    decoder = GobDecoder()
    values = []
    wanted = iter(kinds)
    for at in range(0, len(data), step or len(data)):
        decoder.feed(data[at : at + (step or len(data))])
        while (message := decoder.next()) is not None:
            values.append(decoder.decode(message, next(wanted)))
    assert decoder.waiting == 0
    assert next(wanted, None) is None
    return values


@pytest.mark.parametrize("step", [0, 1, 7])
def test_calls_of_a_go_client(step: int) -> None:
    """Requests and arguments follow each other; types are described once; pieces may be of any size."""
    assert received(captures.CALLS, RpcRequest, GetArgs, RpcRequest, GetArgs, step=step) == [
        RpcRequest("StorageRPC.Get", 1),
        GetArgs("dga:post-1", True, "localhost:9010"),
        RpcRequest("StorageRPC.Get", 300),
        GetArgs("dga:x"),
    ]


def test_answers_of_a_go_server() -> None:
    """Nested structs, slices of strings and of structs, empty ones, errors."""
    assert received(captures.GET_REPLY, Response, GetReply, Response, GetReply) == [
        Response("StorageRPC.Get", 1),
        GetReply(0, "v", LeaseStruct(True, 5)),
        Response("StorageRPC.Get", 2),
        GetReply(1),
    ]
    assert received(captures.LIST_REPLY, GetListReply) == [GetListReply(0, ["a", "", "c"])]
    assert received(captures.REGISTER_REPLY, RegisterReply) == [
        RegisterReply(True, [Client("localhost:9009", 7), Client("localhost:9010", 4294967295)])
    ]
    assert received(captures.TRIBBLES, GetTribblesReply) == [
        GetTribblesReply(0, [Tribble("dga", 1321027200000000000, "first post!"), Tribble("bryant", -1)])
    ]
    assert received(captures.REFUSED, Response, InvalidRequest) == [
        Response("Nope.Nope", 3, "rpc: can't find service Nope.Nope"),
        InvalidRequest(),
    ]


def test_numbers_at_the_edges() -> None:
    """Every width of an integer, both signs, and the reversed bytes of a float."""
    assert received(captures.POINT, Point) == [Point(22, 33)]
    assert received(captures.NUMBERS, Numbers) == [
        Numbers(-1, 127, 128, -129, 1 << 62, -1 << 63, (1 << 64) - 1, 17.0, True)
    ]


def test_the_documented_example() -> None:
    """The stream that the documentation of encoding/gob takes apart byte by byte."""
    data = bytes.fromhex(
        "1fff81030101 05506f696e74 01ff8200 0102 0101580104 00 0101590104 000000 07ff82012c014200"
    )
    assert received(data, Point) == [Point(22, 33)]


def test_unknown_fields_are_skipped() -> None:
    """Whatever a field is that we do not know, maps, interfaces, itself: the ones we know are read."""

    class Known(msgspec.Struct, rename="pascal"):
        key: str = ""
        value: str = ""
        absent: int = 0

    assert received(captures.ODD, Known) == [Known("k", "v", 0)]


def test_types_described_inside_values() -> None:
    """An interface brings its type along in the middle of a value; later values use it without."""
    found = received(captures.ODD2, GetReply, RpcStruct, GetArgs, Point)
    assert found == [GetReply(), RpcStruct(), GetArgs("k3"), Point(3, 4)]


def test_what_is_no_struct_can_be_passed_over() -> None:
    """Values on their own are skipped; what follows is understood."""
    decoder = GobDecoder()
    decoder.feed(captures.PLAIN)
    for _ in range(4):
        message = decoder.next()
        assert message is not None
        decoder.skip(message)
        with pytest.raises(Mismatch):
            decoder.decode(message, Point)
    message = decoder.next()
    assert message is not None
    assert decoder.decode(message, Point) == Point(1, 2)


def test_repeated_descriptions() -> None:
    """The same type described twice is no fault; another under the same id is."""
    twice = captures.POINT[:31] + captures.POINT
    assert received(twice, Point) == [Point(22, 33)]
    other = captures.POINT[:31].replace(b"X", b"Z") + captures.POINT
    with pytest.raises(GobError, match="duplicate"):
        received(other, Point)


def test_interleaved_descriptions() -> None:
    """Descriptions may come between values, and before others that use them."""
    encoder = Encoder()
    first, second = encoder.encode(Point(1, 2)), encoder.encode(RegisterReply(True, [Client("a", 1)]))
    third = encoder.encode(Point(3, 4))
    values = received(first + second + third, Point, RegisterReply, Point)
    assert values == [Point(1, 2), RegisterReply(True, [Client("a", 1)]), Point(3, 4)]
    assert len(third) < len(first)


def test_writes_as_go_does() -> None:
    """A value is encoded byte by byte as Go encodes it; only ids and names of types are our own."""
    numbers = Numbers(-1, 127, 128, -129, 1 << 62, -1 << 63, (1 << 64) - 1, 17.0, True)
    tribbles = [Tribble("dga", 1321027200000000000, "first post!"), Tribble("bryant", -1)]
    clients = [Client("localhost:9009", 7), Client("localhost:9010", 4294967295)]
    for capture, value, size in (
        (captures.GET_REPLY, GetReply(1), 8),
        (captures.LIST_REPLY, GetListReply(0, ["a", "", "c"]), 13),
        (captures.NUMBERS, numbers, 53),
        (captures.TRIBBLES, GetTribblesReply(0, tribbles), 46),
        (captures.REGISTER_REPLY, RegisterReply(True, clients), 50),
        (captures.REFUSED, InvalidRequest(), 4),
    ):
        mine = Encoder().encode(value)
        assert mine[-size] == capture[-size] == size - 1  # the length
        assert mine[3 - size :] == capture[3 - size :]  # the value, after the id of its type


def test_wrong_types_are_said() -> None:
    """A field of another type is the caller's mistake, named in the message; the stream goes on."""

    class Wrong(msgspec.Struct, rename="pascal"):
        key: list[str] = []

    class Wronger(msgspec.Struct, rename="pascal"):
        a: Point = msgspec.field(default_factory=Point)

    with pytest.raises(Mismatch, match=r"str where list.*GetArgs.Key"):
        received(captures.CALLS, RpcRequest, Wrong)
    with pytest.raises(Mismatch, match="int where Point"):
        received(captures.NUMBERS, Wronger)
    data = Encoder().encode(Wronger(Point(1, 1)))
    with pytest.raises(Mismatch, match="struct Point where int"):
        received(data, Numbers)

    class Signed(msgspec.Struct, rename="pascal"):
        seq: int = 0

    data = Encoder().encode(Signed(-7))
    with pytest.raises(Mismatch, match=r"int where uint is wanted .*Signed.Seq"):
        received(data, RpcRequest)
    assert received(Encoder().encode(RpcRequest("", 7)), Signed) == [Signed(7)]


@pytest.mark.parametrize(
    "data",
    [
        b"\xf0",  # a length of 16 bytes
        b"\xfc\x7f\xff\xff\xff",  # 2 GB
        b"\x00",  # an empty message
        captures.POINT[:31] + b"\x02\xff\x80",  # a value that ends early
        captures.POINT[:31] + b"\x03\xff\x80\x05",  # a field that the type does not have
        captures.POINT[:31] + b"\x04\xff\x80\xff\x05",  # no field number
        captures.POINT[:31] + b"\x04\xff\x80\x01\xf7",  # a number that is cut short
        b"\x03\xff\xfe\x00",  # an unknown type
        b"\x02\x05\x00",  # a built-in type described again
        b"\x03\xff\x81\x00",  # an empty description
        b"\x04\xff\x81\x08\x00",  # a description of no kind
        bytes.fromhex("1fff8103010105506f696e7401ff82000170"),
    ],
)
def test_bad_streams(data: bytes) -> None:
    """What is no gob stream ends with an error of its own kind, at once."""
    with pytest.raises(GobError):
        received(data + b"\0" * 64, *[Point] * 80)


def test_limits() -> None:
    """Messages, fields, elements and types are bounded."""
    small = GobDecoder(10)
    small.feed(b"\x0b")
    with pytest.raises(GobError, match="at most 10 bytes"):
        small.next()
    many = bytearray((3, 1, 2))
    wire.write_int(many, 70)
    many += b"\0\1"
    wire.write_uint(many, 2000)
    with pytest.raises(GobError, match="1000 fields"):
        received(wire.message(-70, many + b"\0" * 5000), Point)
    decoder = GobDecoder()
    for n in range(gob_decoder_codec.MAX_TYPES + 1):
        decoder.feed(wire.message(-100 - n, b"\2\2\4\0\0"))
    with pytest.raises(GobError, match="types"):
        decoder.next()
    slices = wire.message(-70, b"\2\1\2\xff\x8c\0\1\4\0\0")  # []int, and a claim of many elements
    decoder = GobDecoder()
    decoder.feed(slices + wire.message(70, b"\0\xfc\x7f\xff\xff\xff"))
    message = decoder.next()
    assert message is not None
    with pytest.raises(GobError, match="more elements"):
        decoder.skip(message)


def test_much_memory_for_few_bytes() -> None:
    """A struct that takes a byte on the wire takes a hundred in memory: long lists of those are refused
    before they are built, wanted or not, while lists of texts may fill a message."""
    usual = Everything(points=[Point()] * 8_000, texts=["some"] * 1_000_000)
    assert received(Encoder().encode(usual), Everything) == [usual]
    for bomb in (Everything(points=[Point()] * 50_000), Everything(matrix=[[]] * 50_000)):
        decoder = GobDecoder()
        decoder.feed(Encoder().encode(bomb))
        message = decoder.next()
        assert message is not None
        with pytest.raises(GobError, match="too many elements"):
            decoder.skip(message)
        with pytest.raises(GobError, match="too many elements"):
            decoder.decode(message, Everything)


def test_nesting_without_end() -> None:
    """A type may contain itself; a value that is nested too deep ends the stream, not the node."""
    own = wire.message(-70, b"\2\1\2\xff\x8c\0\1\xff\x8c\0\0")  # type T []T
    decoder = GobDecoder()
    decoder.feed(own + wire.message(70, b"\0" + b"\1" * 5000 + b"\0"))
    message = decoder.next()
    assert message is not None
    with pytest.raises(GobError, match="too deep"):
        decoder.skip(message)


def test_types_in_types() -> None:
    """Types may be made of each other as deep as there may be types."""
    decoder = GobDecoder()
    deepest = 100 + gob_decoder_codec.MAX_TYPES - 1
    for n in range(100, deepest + 1):
        described = bytearray((2, 1, 2))
        wire.write_int(described, n)
        described += b"\0\1"
        wire.write_int(described, n + 1 if n < deepest else wire.INT)
        decoder.feed(wire.message(-n, described + b"\0\0"))
    decoder.feed(wire.message(100, b"\0\0"))
    message = decoder.next()
    assert message is not None
    decoder.skip(message)


texts = some.text(max_size=40) | some.binary(max_size=20).map(
    lambda data: data.decode("utf-8", "surrogateescape")
)
points = some.builds(Point, some.integers(-(2**63), 2**63 - 1), some.integers(-(2**63), 2**63 - 1))
everything = some.builds(
    Everything,
    some.booleans(),
    some.integers(-(2**63), 2**63 - 1),
    some.integers(0, 2**64 - 1),
    some.floats(allow_nan=False),
    some.binary(max_size=300),
    texts,
    points,
    some.lists(points, max_size=5),
    some.lists(texts, max_size=5),
    some.lists(some.integers(0, 2**64 - 1), max_size=5),
    some.lists(some.lists(some.integers(-1000, 1000), max_size=3), max_size=3),
)


@settings(max_examples=150)
@given(some.lists(everything, min_size=1, max_size=3), some.integers(1, 60))
def test_there_and_back(values: list[Everything], step: int) -> None:
    """Whatever is encoded is decoded to the same, in pieces of any size."""
    encoder = Encoder()
    data = b"".join(map(encoder.encode, values))
    assert received(data, *[Everything] * len(values), step=step) == values


@settings(max_examples=300)
@given(some.binary(max_size=60), some.integers(0, 200), some.integers(0, 255))
def test_damage_is_an_error_and_nothing_else(noise: bytes, at: int, byte: int) -> None:
    """A damaged stream raises what a session catches, never anything else."""
    whole = Encoder().encode(Everything(True, 5, 7, 1.5, b"data", "text", Point(1, 2), [Point(3, 4)]))
    at %= len(whole)
    for data in (whole[:at] + bytes((byte,)) + whole[at + 1 :] + whole, noise, whole[:at] + noise):
        decoder = GobDecoder()
        decoder.feed(data)
        try:
            while (message := decoder.next()) is not None:
                decoder.skip(message)
                decoder.decode(message, Everything)
        except (GobError, Mismatch):
            pass
