"""ZMTP as a ROUTER speaks it: greetings, commands, frames, and what is none of these."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nuncius.doors.zeromq.zmtp_codec import (
    GREETING,
    MAX_FRAMES,
    READY,
    OversizedMessage,
    ZmtpDecoder,
    ZmtpError,
    encode,
)

MAX = 1000
READY_OF_REQ = b"\x04\x26\x05READY\x0bSocket-Type\0\0\0\x03REQ\x08Identity\0\0\0\0"
HELLO = GREETING + READY_OF_REQ
OLD = GREETING[:10] + b"\x01"  # the beginning of a greeting of ZMTP 2.0


def ready(socket_type: bytes, name: bytes = b"Socket-Type") -> bytes:
    body = b"\x05READY" + bytes((len(name),)) + name + len(socket_type).to_bytes(4, "big") + socket_type
    return bytes((4, len(body))) + body


def connected(maximum: int = MAX) -> ZmtpDecoder:
    decoder = ZmtpDecoder(maximum)
    assert decoder.receive(HELLO) == []
    decoder.to_say.clear()
    return decoder


def test_the_greeting() -> None:
    """We begin to greet at once, go on when we know the other side's version, and say READY when it has
    greeted."""
    decoder = ZmtpDecoder(MAX)
    assert decoder.to_say == [GREETING[:11]]
    assert len(GREETING) == 64
    decoder.receive(GREETING[:10])
    assert len(decoder.to_say) == 1
    decoder.receive(GREETING[10:11])
    assert b"".join(decoder.to_say) == GREETING
    decoder.receive(GREETING[11:])
    assert b"".join(decoder.to_say) == GREETING + READY


@pytest.mark.parametrize("identity", [b"", b"ann"])
@pytest.mark.parametrize("kind", [b"\x03", b"\x05", b"\x06"])
def test_an_old_peer(kind: bytes, identity: bytes) -> None:
    """A peer of ZMTP 2.0 is answered with what it expects to follow a version, and served, whether its bytes
    come at once or one by one."""
    hello = OLD + kind + encode([identity])
    decoder = ZmtpDecoder(MAX)
    assert decoder.receive(hello + encode([b"", b"hi"])) == [[b"", b"hi"]]
    assert b"".join(decoder.to_say) == GREETING[:11] + b"\x06" + encode([b""])
    assert decoder.receive(encode([bytes(300)])) == [[bytes(300)]]
    slow = ZmtpDecoder(MAX)
    for n in range(len(hello)):
        assert slow.receive(hello[n : n + 1]) == []
    assert slow.to_say == decoder.to_say
    assert slow.receive(encode([b"hi"])) == [[b"hi"]]


@pytest.mark.parametrize("kind", [b"REQ", b"DEALER", b"ROUTER"])
def test_who_may_connect(kind: bytes) -> None:
    """REQ and DEALER sockets, and ROUTER sockets, are served; names of properties know no case."""
    decoder = ZmtpDecoder(MAX)
    other = b"\x01X\0\0\0\x01y"
    hello = ready(kind, b"SOCKET-type")
    assert decoder.receive(GREETING + hello + encode([b"", b"hi"])) == [[b"", b"hi"]]
    decoder = ZmtpDecoder(MAX)
    body = b"\x05READY" + other + hello[8:]
    assert decoder.receive(GREETING + bytes((4, len(body))) + body + encode([b"hi"])) == [[b"hi"]]


@pytest.mark.parametrize(
    "hello", [ready(b"SUB"), ready(b"PUSH"), ready(b"x", b"Socket"), b"\x04\x06\x05READY"]
)
def test_who_may_not(hello: bytes) -> None:
    """Any other socket, and one that does not say what it is, is told so and sent away."""
    with pytest.raises(ZmtpError) as caught:
        ZmtpDecoder(MAX).receive(GREETING + hello)
    assert b"ERROR" in caught.value.last_words


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x00",
        b"\xff" + bytes(9),  # no end of the signature
        b"\xff" + bytes(8) + b"\x7f\x00",  # ZMTP 1.0
        b"\xff" + bytes(8) + b"\x7f\x02",  # a version that there never was
        OLD + b"\x01",  # PUB
        OLD + b"\x03" + b"\x01\x00",  # an identity of several frames
        OLD + b"\x03" + encode([b""]) + b"\x04\x00",  # a command
        GREETING.replace(b"NULL", b"PLAI"),
        GREETING.replace(b"NULL", b"NULLX"[:4] + b"X", 1)[:64],
        GREETING + encode([b"before READY"]),
        GREETING + b"\x04\x06\x05ERROR",
        GREETING + b"\x04\x05\x04OTHE",
        GREETING + b"\x04\x00",
        HELLO + b"\x04\x06\x05ERROR",
        HELLO + b"\x08\x00",  # flags that mean nothing
        HELLO + b"\x05\x00",  # a command has no second frame
        HELLO + b"\x06" + (1 << 40).to_bytes(8, "big"),  # an endless command
        GREETING + ready(b"REQ")[:-5] + b"\xff",
    ],
)
def test_what_is_not_zeromq(data: bytes) -> None:
    """What makes no sense is noticed, whether it comes at once or byte by byte."""
    with pytest.raises(ZmtpError):
        ZmtpDecoder(MAX).receive(data + bytes(70))
    decoder = ZmtpDecoder(MAX)

    def byte_by_byte() -> None:
        for n in range(len(data)):
            decoder.receive(data[n : n + 1])
        decoder.receive(bytes(70))

    with pytest.raises(ZmtpError):
        byte_by_byte()


@given(st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=5), max_size=5), st.data())
def test_however_it_is_cut(messages: list[list[bytes]], data: st.DataObject) -> None:
    """Messages come out as they were, in whatever pieces they arrive."""
    stream = HELLO + b"".join(map(encode, messages))
    decoder = ZmtpDecoder(1 << 20)
    received = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        received += decoder.receive(stream[:size])
        stream = stream[size:]
    assert received == messages
    assert decoder.incomplete == 0


def test_short_and_long_frames() -> None:
    """Frames of up to 255 bytes have a short head, larger ones a long head."""
    assert encode([b"", b"ab"]) == b"\x01\x00\x00\x02ab"
    large = bytes(256)
    assert encode([large, large]) == b"\x03\0\0\0\0\0\0\1\0" + large + b"\x02\0\0\0\0\0\0\1\0" + large
    assert connected().receive(encode([bytes(255), large])) == [[bytes(255), large]]


def test_a_ping() -> None:
    """A PING is answered by a PONG with its context, also in the middle of a message."""
    decoder = connected()
    assert decoder.receive(b"\x01\x01a" + b"\x04\x0a\x04PING\x00\x0actx" + b"\x00\x01b") == [[b"a", b"b"]]
    assert decoder.to_say == [b"\x04\x08\x04PONGctx"]


def test_other_commands() -> None:
    """A command that we do not know is nothing to us."""
    decoder = connected()
    assert decoder.receive(b"\x04\x0b\x09SUBSCRIBEx"[:13] + encode([b"hi"])) == [[b"hi"]]
    assert decoder.to_say == []


def test_too_large() -> None:
    """Of a message that is too large only the beginning is kept; what comes after it is read."""
    decoder = connected()
    head = b"\x01\x00" + b"\x02" + (MAX + 1).to_bytes(8, "big")
    (message,) = decoder.receive(head)
    assert isinstance(message, OversizedMessage)
    assert message == [b""]
    for _ in range(10):
        assert decoder.receive(bytes(100)) == []
        assert decoder.incomplete == 0
    assert decoder.receive(b"x" + encode([b"next"])) == [[b"next"]]


def test_too_large_together() -> None:
    """It is the size of all frames that counts, and their number."""
    decoder = connected()
    frames = [bytes(MAX // 2), bytes(MAX // 2), b"x", b"y"]
    large, small = decoder.receive(encode(frames) + encode([b"next"]))
    assert isinstance(large, OversizedMessage)
    assert large == frames[:2]
    assert small == [b"next"]
    (many,) = decoder.receive(encode([b"x"] * (MAX_FRAMES + 10)))
    assert isinstance(many, OversizedMessage)
    assert len(many) == MAX_FRAMES


def test_what_is_incomplete() -> None:
    """It is known how much is kept of a message that has not ended."""
    decoder = connected()
    decoder.receive(encode([b"ab", b"cd"])[:-1])
    assert decoder.incomplete == 5
