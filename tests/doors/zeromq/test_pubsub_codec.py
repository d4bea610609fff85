"""Every row of the report's tables, in both forms, and what is in none."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nuncius.doors.zeromq.pubsub_codec import (
    MAX_NUMBER,
    GetRequest,
    Malformed,
    PutRequest,
    Request,
    SubscribeRequest,
    UnsubscribeRequest,
    answer,
    encode,
    parse,
    split,
)

ROWS: list[tuple[str, Request]] = [
    ("g ann news 7", GetRequest("ann", "news", 7)),
    ("g ann news 7 wait=2.5", GetRequest("ann", "news", 7, 2.5)),
    ("g ann news 7 wait=30", GetRequest("ann", "news", 7, 30.0)),
    ("p bob news 3 text", PutRequest("bob", "news", 3, b"text")),
    ("s ann news", SubscribeRequest("ann", "news")),
    ("s ann news resume", SubscribeRequest("ann", "news", True)),
    ("u ann news", UnsubscribeRequest("ann", "news")),
    ("u änn nöws", UnsubscribeRequest("änn", "nöws")),
]


@pytest.mark.parametrize(("text", "request_"), ROWS)
def test_requests(text: str, request_: Request) -> None:
    """A request is one frame of text or one frame a field."""
    assert parse([text.encode()]) == request_
    assert parse([field.encode() for field in text.split(" ")]) == request_
    assert parse(encode(request_)) == request_


@pytest.mark.parametrize("text", ["two words", " leading", "trailing ", "", "a\nb\0c", "ünï☃", "  "])
def test_text_is_the_rest(text: str) -> None:
    """The text of a put is the rest of the frame, whatever is in it, and may be empty."""
    assert parse([f"p bob news 3 {text}".encode()]) == PutRequest("bob", "news", 3, text.encode())


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b" "],
        [b"x"],
        [b"x ann news 1"],
        [b"p"],
        [b"p bob"],
        [b"p bob news"],
        [b"p bob news 3"],  # no text
        [b"p bob news x text"],
        [b"p bob news -1 text"],
        [b"p bob news 1.0 text"],
        [b"p bob  3 text"],  # no topic
        [b"p  news 3 text"],
        [b"p bob news 3 \xff"],  # not UTF-8
        [b"P bob news 3 text"],
        [b"pbob news 3 text"],
        [b"g ann news"],
        [b"g ann news "],
        [b"g ann news x"],
        [b"g ann news -1"],
        [b"g ann news 1 2"],
        [b"g ann news 1 wait="],
        [b"g ann news 1 wait=."],
        [b"g ann news 1 wait=-1"],
        [b"g ann news 1 wait=nan"],
        [b"g ann news 1 wait=1e9"],
        [b"g ann news 1 wait=1 1"],
        [b"g ann news \xc2\xb2"],  # a digit, but not one of ours
        [b"s ann"],
        [b"s ann news x"],
        [b"s ann news resume x"],
        [b"u"],
        [b"u ann"],
        [b"u ann news x"],
        [b"u ann \xff"],
        [b"p", b"bob", b"news", b"3"],
        [b"p", b"bob", b"news", b"3", b"text", b"more"],
        [b"p", b"", b"news", b"3", b"text"],
        [b"g", b"ann", b"news", b""],
        [b"g", b"ann", b"", b"1"],
        [b"s", b"\xff", b"news"],
        [b"u", b"ann"],
        [b"s ann", b"news"],
    ],
)
def test_malformed(frames: Sequence[bytes]) -> None:
    """What is in no table is no request."""
    with pytest.raises(Malformed):
        parse(frames)


@given(st.lists(st.binary(max_size=30), max_size=6))
def test_anything_at_all(frames: list[bytes]) -> None:
    """Whatever comes is a request or is not; nothing else happens."""
    try:
        request = parse(frames)
    except Malformed:
        return
    assert isinstance(request, Request)


def test_large_numbers() -> None:
    """A number with more digits than any count has is just large."""
    assert parse([b"g ann news " + b"9" * 5000]) == GetRequest("ann", "news", MAX_NUMBER)
    assert parse([b"p bob news 007 x"]) == PutRequest("bob", "news", 7, b"x")


def test_bodies_are_bytes() -> None:
    """A body in a frame of its own may be any bytes."""
    assert parse([b"p", b"bob", b"news", b"3", b"\xff \0"]) == PutRequest("bob", "news", 3, b"\xff \0")


def test_answers() -> None:
    """Answers come as frames or as text; text is always valid."""
    fields = (b"a", b"7", b"two words \xff")
    assert answer(fields, as_text=False) == fields
    assert answer(fields, as_text=True) == ("a 7 two words \ufffd".encode(),)
    assert answer((b"a", b"7", "ü".encode()), as_text=True) == ("a 7 ü".encode(),)
    assert answer((b"e", b"ns"), as_text=True) == (b"e ns",)


@pytest.mark.parametrize(
    ("frames", "envelope"),
    [
        ([b"", b"u a b"], (b"",)),  # REQ
        ([b"u a b"], ()),  # DEALER
        ([b"u", b"a", b"b"], ()),
        ([b"p", b"a", b"b", b"1", b""], ()),  # an empty text is no delimiter
        ([b"p", b"", b"b", b"1", b"x"], ()),
        ([b"id", b"", b"u a b"], (b"id", b"")),  # REQ with correlation, or behind a proxy
        ([b"id", b"other", b"", b"p", b"a", b"b", b"1", b""], (b"id", b"other", b"")),
        ([b"p", b"", b"u a b"], (b"p", b"")),  # an identity that looks like a request
        ([b"s", b"g", b"", b"u", b"a", b"b"], (b"s", b"g", b"")),
        ([b""], (b"",)),
        ([b"x", b""], ()),
        ([], ()),
    ],
)
def test_envelopes(frames: list[bytes], envelope: tuple[bytes, ...]) -> None:
    """Whatever stands before the request stands before the answer."""
    assert split(frames) == (envelope, frames[len(envelope) :])
