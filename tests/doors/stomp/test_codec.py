"""The codec alone: frames from bytes, whatever pieces they come in."""

import pytest

from nuncius.doors.stomp.frames.codec import Frame, FrameDecoder, FrameLimits, cut, encode
from nuncius.doors.stomp.frames.versions import StompError, Version, header_line, negotiate, unescape
from nuncius.doors.stomp.slim_codec import Splitter

V10, V11, V12 = Version
SMALL = FrameLimits(max_headers=3, max_line=20, max_head=60, max_body=10)


def decode(data: bytes, version: Version = V12, limits: FrameLimits | None = None) -> list[Frame]:
    return list(FrameDecoder(version, limits or FrameLimits()).receive(data))


def error(data: bytes, version: Version = V12, limits: FrameLimits | None = None) -> str:
    with pytest.raises(StompError) as caught:
        decode(data, version, limits)
    return str(caught.value)


def test_a_frame() -> None:
    """A command, headers, a blank line, a body, a NUL."""
    assert decode(b"SEND\ndestination:/queue/a\nx:y\n\nhello\0") == [
        Frame("SEND", {"destination": "/queue/a", "x": "y"}, b"hello")
    ]


def test_a_frame_without_headers_or_body() -> None:
    """Both may be missing."""
    assert decode(b"DISCONNECT\n\n\0") == [Frame("DISCONNECT", {})]


def test_several_frames_with_line_ends_between_them() -> None:
    """Any number of line ends may follow a frame, or come before the first."""
    data = b"\n\r\nBEGIN\n\n\0\n\n\r\n\nABORT\n\n\0COMMIT\n\n\0\n"
    assert [frame.command for frame in decode(data)] == ["BEGIN", "ABORT", "COMMIT"]


def test_content_length_counts() -> None:
    """With content-length a body may hold NULs; without it the first NUL ends it."""
    assert decode(b"SEND\ncontent-length:3\n\n\0\0a\0") == [Frame("SEND", {"content-length": "3"}, b"\0\0a")]
    assert decode(b"SEND\n\nab\0\n") == [Frame("SEND", {}, b"ab")]


def test_the_first_of_repeated_headers_counts() -> None:
    """Further ones are history."""
    assert decode(b"SEND\nfoo:World\nfoo:Hello\n\n\0")[0].headers == {"foo": "World"}


def test_colons_in_values() -> None:
    """The first colon ends the name; clients that do not escape the others are understood."""
    assert decode(b"SEND\nurl:http://x:1\n\n\0", V11)[0].headers == {"url": "http://x:1"}


def test_empty_values() -> None:
    """A value may be empty."""
    assert decode(b"SEND\na:\nb:\r\n\n\0")[0].headers == {"a": "", "b": ""}


@pytest.mark.parametrize(
    ("version", "written", "meant"),
    [
        (V10, r"a\nb\c\\", r"a\nb\c\\"),
        (V11, r"a\nb\c\\", "a\nb:\\"),
        (V12, r"a\nb\c\\\r", "a\nb:\\\r"),
        (V12, "\\\\n", "\\n"),
    ],
)
def test_escapes(version: Version, written: str, meant: str) -> None:
    """1.0 has no escapes, 1.1 has three, 1.2 has four; in names and in values."""
    frame = decode(f"SEND\n{written}:{written}\n\n\0".encode(), version)[0]
    assert frame.headers == {meant: meant}
    assert header_line("x", meant, version) == f"x:{written}\n"


@pytest.mark.parametrize(
    ("version", "written"),
    [(V11, "\\r"), (V11, "\\t"), (V12, "\\t"), (V12, "a\\"), (V12, "\\N"), (V12, "\\\r")],
)
def test_unknown_escapes(version: Version, written: str) -> None:
    """An escape sequence that the version does not have is a fatal error."""
    with pytest.raises(StompError, match="escape"):
        unescape(written, version)


def test_what_an_old_version_cannot_say() -> None:
    """1.0 gets blanks for line ends in a value, and not at all a header whose name it cannot write; 1.1 gets
    carriage returns as they are."""
    assert header_line("a", "1\r\n2", V10) == "a:1  2\n"
    assert header_line("a:b", "1", V10) == ""
    assert header_line("a\nb", "1", V10) == ""
    assert header_line("a", "1\r2", V11) == "a:1\r2\n"


def test_line_ends() -> None:
    """In 1.2 a line may end with CR LF; before, the CR belongs to the line."""
    data = b"SEND\r\ndestination:x\r\n\r\nbody\r\n\0\r\n"
    assert decode(data) == [Frame("SEND", {"destination": "x"}, b"body\r\n")]
    assert decode(b"SEND\na:b\r\n\nbody\0", V11) == [Frame("SEND", {"a": "b\r"}, b"body")]
    assert "no header" in error(b"SEND\na:b\n\r\n\n\0", V11)


def test_padding() -> None:
    """1.0 examples pad headers with blanks, so those are trimmed; later versions keep every blank."""
    data = b"SEND\n a : b \n\n\0"
    assert decode(data, V10)[0].headers == {"a": "b"}
    assert decode(data, V11)[0].headers == {" a ": " b "}
    assert decode(data, V12)[0].headers == {" a ": " b "}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"SEND\nnocolon\n\n\0", "no header"),
        (b"SEND\n:v\n\n\0", "no header"),
        (b"SEND\na:b\0", "blank line"),
        (b"SEND\na:b\0c\n\n\0", "blank line"),
        (b"SEND\n\xff:b\n\n\0", "UTF-8"),
        (b"SEND\ncontent-length:x\n\n\0", "number of bytes"),
        (b"SEND\ncontent-length:-1\n\n\0", "number of bytes"),
        (b"SEND\ncontent-length:\xc2\xb2\n\n\0", "number of bytes"),
        (b"SEND\ncontent-length:1111111111111111111\n\n\0", "number of bytes"),
        (b"SEND\ncontent-length:1\n\nab\0", "no NUL"),
        (b"SUBSCRIBE\nid:1\n\nbody\0", "no body"),
    ],
)
def test_what_is_no_frame(data: bytes, text: str) -> None:
    """The error says what is wrong."""
    assert text in error(data)


def test_a_body_where_none_belongs() -> None:
    """1.0 lets every frame have a body; later only SEND, MESSAGE and ERROR."""
    assert decode(b"SUBSCRIBE\nid:1\n\nbody\0", V10)[0].body == b"body"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"S\na:1\nb:2\nc:3\nd:4\n\n\0", "at most 3 headers"),
        (b"S\na:" + b"x" * 20 + b"\n\n\0", "at most 20 bytes"),
        (b"S\n" + b"a:xxxxxxxxxxxxxxxx\n" * 3 + b"b:yyyy\n\n\0", "at most 60 bytes"),
        (b"x" * 60, "at most 60 bytes"),
        (b"SEND\ncontent-length:11\n\n", "at most 10 bytes"),
        (b"SEND\n\n" + b"x" * 11, "at most 10 bytes"),
    ],
)
def test_limits(data: bytes, text: str) -> None:
    """What is too large is refused as soon as that is known."""
    assert text in error(data, limits=SMALL)


def test_up_to_the_limits() -> None:
    """What just fits is accepted."""
    head = b"SEND\naa:xxxxxxxxxxxxxxxxx\nbb:xxxxxxxxxxxxxxxxx\nc:xxxx\n\n"
    assert len(head) <= SMALL.max_head
    for body in (b"x" * 10, b"\0" * 10):
        length = b"content-length:10\n" if b"\0" in body else b""
        assert decode(b"SEND\n" + length + b"\n" + body + b"\0", limits=SMALL)[0].body == body
    assert len(decode(head + b"\0", limits=SMALL)[0].headers) == 3


def test_frames_before_an_error() -> None:
    """Good frames before a bad one are given first."""
    decoder = FrameDecoder(V12, FrameLimits())
    frames = decoder.receive(b"BEGIN\ntransaction:1\n\n\0bad\n:\n\n\0")
    assert next(frames).command == "BEGIN"
    with pytest.raises(StompError):
        next(frames)


def test_incomplete() -> None:
    """How much of a frame has come is known, for whoever counts memory."""
    decoder = FrameDecoder(V12, FrameLimits())
    assert list(decoder.receive(b"BEGIN\n\n\0SEND\n\nabc")) == [Frame("BEGIN", {})]
    assert decoder.incomplete == 9
    assert list(decoder.receive(b"\0")) == [Frame("SEND", {}, b"abc")]
    assert decoder.incomplete == 0


@pytest.mark.parametrize("length", [b"", b"content-length:%d\n" % (4 << 20)])
def test_a_large_frame_in_small_pieces(length: bytes) -> None:
    """The pieces of a frame are looked at once: a large body in small pieces does not take long."""
    decoder = FrameDecoder(V12, FrameLimits())
    body = b"x" * (4 << 20)
    data = b"SEND\n" + length + b"\n" + body + b"\0"
    frames = [frame for at in range(0, len(data), 64) for frame in decoder.receive(data[at : at + 64])]
    assert frames[0].body == body


@pytest.mark.parametrize("rest", [b"", b"\n", b"SEND\ncontent-length:5\n\na\0\nb", b"BEGIN\n\n\0\n\nACK"])
def test_what_comes_behind_the_first_frame(rest: bytes) -> None:
    """It is left as it came: a line end after a NUL may be in the body of a frame that has only begun."""
    splitter = Splitter(1000)
    assert next(splitter.receive(b"\nCONNECT\n\n\0" + rest)) == b"CONNECT\n\n"
    assert splitter.rest() == rest


@pytest.mark.parametrize(
    ("accepted", "version"),
    [
        (None, V10),
        ("1.0", V10),
        ("1.0,1.1,2.0", V11),
        ("1.2,1.1", V12),
        (" 1.1 , 1.2 ", V12),
        ("2.0", None),
        ("", None),
    ],
)
def test_negotiation(accepted: str | None, version: Version | None) -> None:
    """The highest version that both know; a client that names none knows 1.0."""
    assert negotiate(accepted) == version


def test_encoding() -> None:
    """A frame is written with the escapes of its version."""
    headers = {"destination": "a:b", "x": "1\n2"}
    assert encode("SEND", headers, b"\0", V12) == b"SEND\ndestination:a\\cb\nx:1\\n2\n\n\0\0"
    assert encode("SEND", headers, b"", V10) == b"SEND\ndestination:a:b\nx:1 2\n\n\0"


def test_cutting() -> None:
    """What is sent together can be told apart again: heart-beats, frames with and without a length."""
    frames = [
        b"\n",
        b"CONNECTED\n\n\0",
        b"\n",
        encode("MESSAGE", {"x": "\ncontent-length:1\n", "content-length": "4"}, b"\0\n\n\0", V12),
        encode("MESSAGE", {"content-length": "0"}, b"", V10),
        b"MESSAGE\ndestination:news\n\n\ncontent-length:1\n\n\n\0",
        b"RECEIPT\nreceipt-id:1\n\n\0",
    ]
    assert list(cut(b"".join(frames))) == frames
    assert list(cut(b"")) == []
