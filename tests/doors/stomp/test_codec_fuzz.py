"""The codec against everything: no crash, no hang, and the same frames however the bytes are cut."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nuncius.doors.stomp import slim_codec
from nuncius.doors.stomp.frames.codec import Frame, FrameDecoder, FrameLimits, encode
from nuncius.doors.stomp.frames.versions import StompError, Version
from nuncius.doors.stomp.slim_codec import Splitter, TooLarge

SMALL = FrameLimits(max_headers=4, max_line=30, max_head=80, max_body=40)

versions = st.sampled_from(Version)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
names = texts.filter(lambda name: name not in ("", "content-length"))
bodies = st.binary(max_size=30)
alphabet = st.sampled_from(
    [b"SEND", b"ACK", b"\n", b"\n\n", b"\r\n", b"\0", b":", b"a:b\n", b"content-length:3\n", b"\\", b"x" * 30]
)
noise = st.one_of(st.binary(max_size=200), st.lists(alphabet, max_size=12).map(b"".join))


def frame_bytes(version: Version, headers: dict[str, str], body: bytes) -> bytes:
    return encode("SEND", {"content-length": str(len(body)), **headers}, body, version)


def results(pieces: list[bytes], version: Version, limits: FrameLimits) -> tuple[list[Frame], bool, int]:
    """The frames, whether an error came in the end, and how much is left if not."""
    decoder = FrameDecoder(version, limits)
    frames: list[Frame] = []
    try:
        for piece in pieces:
            frames.extend(decoder.receive(piece))
    except StompError:
        return frames, True, 0
    return frames, False, decoder.incomplete


def every_cut(data: bytes) -> list[list[bytes]]:
    cuts = [[data[:at], data[at:]] for at in range(1, len(data))]
    return [*cuts, [data[at : at + 1] for at in range(len(data))]]


@settings(deadline=None)
@given(st.sampled_from([Version.V11, Version.V12]), st.dictionaries(names, texts, max_size=5), bodies)
def test_what_is_written_is_read(version: Version, headers: dict[str, str], body: bytes) -> None:
    """Any header and any body that one side writes is what the other side reads."""
    headers = {name.replace("\r", ""): value.replace("\r", "") for name, value in headers.items()}
    headers.pop("", None)
    (frame,) = FrameDecoder(version, FrameLimits()).receive(frame_bytes(version, headers, body))
    assert frame == Frame("SEND", {"content-length": str(len(body)), **headers}, body)


@settings(deadline=None)
@given(versions, noise)
def test_any_bytes_in_any_pieces(version: Version, data: bytes) -> None:
    """Whatever comes is frames or an error, the same for every way to cut it, and little is kept."""
    whole = results([data], version, SMALL)
    for pieces in every_cut(data):
        assert results(pieces, version, SMALL) == whole
    assert whole[2] <= SMALL.max_head + SMALL.max_body


@settings(max_examples=200, deadline=None)
@given(
    versions,
    st.lists(st.tuples(st.dictionaries(names, texts, max_size=3), bodies), min_size=1, max_size=3),
    st.data(),
)
def test_mutated_frames(
    version: Version, made: list[tuple[dict[str, str], bytes]], data: st.DataObject
) -> None:
    """Frames with a few bytes changed, added or gone are frames or an error, the same in any pieces."""
    stream = bytearray(b"".join(frame_bytes(version, headers, body) for headers, body in made))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(stream) - 1))
        stream[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        if not stream:
            break
    whole = results([bytes(stream)], version, FrameLimits())
    for pieces in every_cut(bytes(stream)):
        assert results(pieces, version, FrameLimits()) == whole


def slim_results(pieces: list[bytes]) -> list[object]:
    splitter = Splitter(60)
    found: list[object] = []
    try:
        for piece in pieces:
            found.extend(map(slim_codec.parse, splitter.receive(piece)))
    except TooLarge:
        return [*found, TooLarge]
    return [*found, splitter.incomplete]


@settings(deadline=None)
@given(noise)
def test_slim_bytes_in_any_pieces(data: bytes) -> None:
    """The slim dialect, too: the same for every way to cut it."""
    whole = slim_results([data])
    for pieces in every_cut(data):
        assert slim_results(pieces) == whole


@settings(deadline=None)
@given(noise)
def test_any_introduction(data: bytes) -> None:
    """Whatever comes first is an introduction or none."""
    for piece in Splitter(1000).receive(data + b"\0"):
        headers = slim_codec.introduction(piece)
        assert headers is None or piece.startswith((b"CONNECT", b"STOMP"))
