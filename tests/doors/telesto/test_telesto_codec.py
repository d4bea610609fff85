"""The packets of both dialects as bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nuncius.doors.telesto import table
from nuncius.doors.telesto.codec import Broken, Codec, DoesNotFit, UnreadablePacket, detect
from nuncius.doors.telesto.fields_codec import Alone, Field, ListOf, fields_of
from nuncius.doors.telesto.table import (
    PACKETS,
    Answer,
    Dialect,
    ErrorType,
    Message,
    Number,
    Packet,
    Queue,
    ReadMode,
    Request,
)

ID = 0x01020304
M = Message(1, 2, 3, 4, 5, 6, 1384473600000, "hé")
N = Message(0, 2, 0, 0, 0, 1, 0, "x")

GOLDEN_DEPLOYED: list[tuple[Packet, str]] = [
    (table.Ping(ID), "00050101020304"),
    (table.Success(ID), "00050301020304"),
    (table.Error(ID, ErrorType.NO_MESSAGES_RETRIEVED, "no"), "000a05010203040b00026e6f"),
    (table.RegisterClient(ID, "bob", 1), "000b11010203040003626f6201"),
    (table.RegisterClientResponse(ID, 42), "000912010203040000002a"),
    (table.IdentifyClientResponse(ID, 2, "bob"), "000b1401020304020003626f62"),
    (table.CreateQueue(ID, "q€"), "000b2101020304000471e282ac"),
    (table.GetQueuesResponse(ID, [Queue(7, "q€")]), "00132a010203040000000100000007000471e282ac"),
    (
        table.PutMessage(ID, N, []),
        "00293101020304000000000000000200000000000000000000000001000000000000000000017800000000",
    ),
    (
        table.PutMessage(ID, N, [8, 9]),
        "003131010203040000000000000002000000000000000000000000010000000000000000000178000000020000000800000009",
    ),
    (table.ReadMessage(ID, 2, 0, ReadMode.TIME), "000e3301020304000000020000000002"),
    (
        table.ReadMessageResponse(ID, [M]),
        "0027340102030400000001000000020000000300000004000000050600000142590ea000000368c3a9",
    ),
    (table.ReadResponse(ID, 2, 5), "000d35010203040000000200000005"),
]
# Derived by hand from the differences between the dialects.
GOLDEN_REPORT: list[tuple[Packet, str]] = [
    (table.Ping(ID), "0008000101020304"),
    (table.Error(ID, ErrorType.NO_MESSAGES_RETRIEVED), "00090005010203040b"),
    (table.RegisterClient(ID, "bob", 1), "000e0011010203040003626f6201"),
    (table.DeleteClient(ID, 42), "000c0015010203040000002a"),
    (table.GetQueueId(ID, 1, "q€"), "000f00250102030401000471e282ac"),
    (table.ReadMessage(ID, 2, 0, ReadMode.TIME), "0011003201020304000000020000000002"),
    (
        table.ReadMessageResponse(ID, [M]),
        "002e0033010203040000000100000001000000020000000300000004000000050600000142590ea000000368c3a9",
    ),
    (table.ReadResponse(ID, 2, 5), "00100034010203040000000200000005"),
]
GOLDEN = [(Dialect.DEPLOYED, *row) for row in GOLDEN_DEPLOYED] + [
    (Dialect.REPORT, *row) for row in GOLDEN_REPORT
]


def codec(dialect: Dialect, packet: Packet) -> Codec:
    """The codec of the side that receives this packet."""
    return Codec(dialect, Answer if isinstance(packet, Answer) else Request)


@pytest.mark.parametrize(("dialect", "packet", "hexadecimal"), GOLDEN)
def test_golden_bytes(dialect: Dialect, packet: Packet, hexadecimal: str) -> None:
    """Packets are exactly these bytes, in both directions."""
    data = bytes.fromhex(hexadecimal)
    receiver = codec(dialect, packet)
    assert receiver.encode(packet) == data
    assert receiver.receive(data) == [packet]


def values(field: Field) -> st.SearchStrategy[Any]:
    return st.just(field.default) if not field.present else values_of(field.kind)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    if kind is str:
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=100)
    if isinstance(kind, Number):
        half = 1 << ({"b": 8, "i": 32, "q": 64}[kind.code] - 1)
        return st.integers(-half, half - 1)
    if isinstance(kind, ListOf):
        return st.lists(values_of(kind.item), max_size=10)
    if isinstance(kind, Alone):
        return st.lists(values_of(kind.item), min_size=1, max_size=1)
    return st.builds(kind, *(values(field) for field in fields_of(kind, Dialect.DEPLOYED)))


def packets(dialect: Dialect, direction: type[Packet] = Packet) -> st.SearchStrategy[Packet]:
    """Any packet of the table, with any values its fields can hold."""
    ids = st.integers(-(2**31), 2**31 - 1)
    kinds = [kind for kind in PACKETS if issubclass(kind, direction)]
    return st.sampled_from(kinds).flatmap(
        lambda kind: st.builds(kind, ids, *(values(field) for field in fields_of(kind, dialect)))
    )


@given(st.data(), st.sampled_from(Dialect))
def test_every_packet_round_trips(data: st.DataObject, dialect: Dialect) -> None:
    """What is encoded is decoded to the same packet, whatever its values."""
    packet = data.draw(packets(dialect))
    receiver = codec(dialect, packet)
    assert receiver.receive(receiver.encode(packet)) == [packet]


@given(st.data(), st.sampled_from(Dialect))
def test_cuts_do_not_matter(data: st.DataObject, dialect: Dialect) -> None:
    """Packets come out whole and in order wherever the stream is cut."""
    sent = data.draw(st.lists(packets(dialect, Request), min_size=1, max_size=4))
    stream = b"".join(map(Codec(dialect).encode, sent))
    for cut in range(len(stream) + 1):
        receiver = Codec(dialect)
        assert receiver.receive(stream[:cut]) + receiver.receive(stream[cut:]) == sent


@given(st.data(), st.sampled_from(Dialect))
def test_three_bytes_tell_the_dialect(data: st.DataObject, dialect: Dialect) -> None:
    """The first three bytes of any packet tell which dialect it is of."""
    packet = data.draw(packets(dialect))
    assert detect(Codec(dialect).encode(packet)[:3]) is dialect


@given(st.binary(max_size=300), st.sampled_from(Dialect))
def test_noise_raises_nothing(noise: bytes, dialect: Dialect) -> None:
    """Bytes without sense become packets, UnreadablePacket or Broken, never an exception."""
    for event in Codec(dialect).receive(noise):
        assert isinstance(event, Packet | UnreadablePacket | Broken)


@pytest.mark.parametrize(
    ("hexadecimal", "reason"),
    [
        ("00057f01020304", "there is no method 0x7f"),
        ("00050201020304", "Pong (0x02) does not go in this direction"),
        ("00070101020304ffff", "Ping: 2 bytes too many"),
        ("00051301020304", "IdentifyClient: it ends too early"),
        ("000921010203040009ffff", "a text of 9 bytes where 2 are left"),
        ("00092101020304fffeffff", "a text of -2 bytes"),
        ("000921010203040002c328", "can't decode"),
        (
            "00293101020304000000000000000200000000000000000000000001000000000000000000017800000001",
            "list of 1",
        ),
        (
            "0029310102030400000000000000020000000000000000000000000100000000000000000001787fffffff",
            "a list of",
        ),
        (
            "002931010203040000000000000002000000000000000000000000010000000000000000000178ffffffff",
            "a list of -1",
        ),
    ],
)
def test_unreadable_packets(hexadecimal: str, reason: str) -> None:
    """A packet that makes no sense says why, keeps its id, and leaves the next one alone."""
    bad, good = Codec(Dialect.DEPLOYED).receive(bytes.fromhex(hexadecimal + "00050101020304"))
    assert isinstance(bad, UnreadablePacket)
    assert reason in bad.reason
    assert bad.packet_id == ID
    assert good == table.Ping(ID)


@pytest.mark.parametrize(
    ("dialect", "hexadecimal"),
    [(Dialect.DEPLOYED, "000401"), (Dialect.DEPLOYED, "800001"), (Dialect.REPORT, "000700")],
)
def test_impossible_lengths(dialect: Dialect, hexadecimal: str) -> None:
    """After a length that no packet has, nothing more is read."""
    receiver = Codec(dialect)
    good = receiver.encode(table.Ping(ID))
    first, broken = receiver.receive(good + bytes.fromhex(hexadecimal))
    assert first == table.Ping(ID)
    assert isinstance(broken, Broken)
    assert receiver.receive(good) == []


@pytest.mark.parametrize(("dialect", "size"), [(Dialect.DEPLOYED, 8192), (Dialect.REPORT, 32767)])
def test_answers_end_at_the_limit(dialect: Dialect, size: int) -> None:
    """The largest possible answer is exactly as large as its reader can take; one byte more is refused."""
    sender = Codec(dialect)
    room = size - len(sender.encode(table.GetMessagesResponse(ID, [_sized(0)])))
    assert len(sender.encode(table.GetMessagesResponse(ID, [_sized(room)]))) == size
    with pytest.raises(DoesNotFit):
        sender.encode(table.GetMessagesResponse(ID, [_sized(room + 1)]))
    assert sender.fitting([_sized(room)]) == 1
    assert sender.fitting([_sized(room + 1)]) == 0


@pytest.mark.parametrize("dialect", Dialect)
def test_fitting_counts_what_fits(dialect: Dialect) -> None:
    """The items that are said to fit do, and one more does not."""
    sender = Codec(dialect)
    items = [_sized(n) for n in range(2000)]
    count = sender.fitting(items)
    assert sender.encode(table.GetMessagesResponse(ID, items[:count]))
    with pytest.raises(DoesNotFit):
        sender.encode(table.GetMessagesResponse(ID, items[: count + 1]))


@pytest.mark.parametrize(
    "packet",
    [
        table.CreateQueue(ID, "x" * 40000),
        table.CreateQueue(ID, "\ud800"),
        table.DeleteQueue(ID, 2**31),
        table.DeleteQueue(2**31, 1),
    ],
)
def test_values_that_no_field_can_hold(packet: Packet) -> None:
    """A value beyond its field is refused when it is encoded."""
    with pytest.raises(DoesNotFit):
        Codec(Dialect.DEPLOYED).encode(packet)


@pytest.mark.parametrize("dialect", Dialect)
def test_method_ids_are_unambiguous(dialect: Dialect) -> None:
    """No two packets of a dialect share a method id, and all are below 0x80."""
    ids = [packet.METHODS.of(dialect) for packet in PACKETS]
    assert len(set(ids)) == len(ids)
    assert all(0 < number < 0x80 for number in ids)


def _sized(size: int) -> Message:
    return Message(1, 1, 1, 1, 1, 1, 1, "x" * size)
