"""Render MESSAGE frames.

All subscribers of a topic get the same frame except for its first lines. So the rest, from the message's id
to the NUL, is rendered once for a chunk of entries and cached with them; each subscriber's own lines go
before it.
"""

import time
from itertools import repeat

from nuncius.broker.model import Leased, TailChunk
from nuncius.doors.stomp.frames.headers import NOTHING, Shown, shown
from nuncius.doors.stomp.frames.versions import Version, header_line

NUL_FREE = "stomp slim"


class FrameTails:
    """The rendered ends of a chunk's frames. `expires` is empty if no entry expires."""

    __slots__ = ("expires", "frames")

    def __init__(self, frames: list[bytes], expires: list[int]) -> None:
        self.frames = frames
        self.expires = expires


def tails(chunk: TailChunk, topic_id: int, partition: int, version: Version) -> FrameTails:
    kind = f"stomp {version}"
    made: FrameTails | None = chunk.rendered.get(kind)
    if made is None:
        made = chunk.rendered[kind] = _make_tails(chunk, topic_id, partition, version)
    return made


def _make_tails(chunk: TailChunk, topic_id: int, partition: int, version: Version) -> FrameTails:
    entries = chunk.entries
    known: dict[str | None, Shown] = {None: NOTHING}  # cache, because many entries have the same headers
    frames, expires = [], []
    columns = zip(
        range(entries.first_offset, entries.next_offset),
        entries.times,
        entries.bodies,
        entries.keys or repeat(None),
        entries.headers or repeat(None),
        strict=False,  # the last two may be infinite
    )
    for offset, arrival, body, key, text in columns:
        headers = known.get(text)
        if headers is None:
            headers = known[text] = shown(text, version, "key")
        lines = headers.lines if headers.has_time else b"timestamp:%d\n%b" % (arrival // 1000, headers.lines)
        if key is not None:
            lines = header_line("key", key, version).encode() + lines
        frames.append(
            b"message-id:t-%d-%d-%d\n%bcontent-length:%d\n\n%b\0"
            % (topic_id, partition, offset, lines, len(body), body)
        )
        expires.append(headers.expires)
    return FrameTails(frames, expires if any(expires) else [])


def entry_id(topic_id: int, partition: int, offset: int) -> str:
    """Return the message-id of an entry."""
    return f"t-{topic_id}-{partition}-{offset}"


def message_id(leased: Leased) -> str:
    """Return the message-id of a queue's message. It stays the same when the message is redelivered."""
    return f"q-{leased.origin}"


def message_tail(leased: Leased, version: Version) -> tuple[bytes, int]:
    """Return the end of the frame of a queue's message, and the message's expiry."""
    message = leased.message
    headers = shown(message.headers, version, "priority")
    when = b"" if headers.has_time else b"timestamp:%d\n" % (message.time // 1000)
    tail = b"message-id:q-%d\npriority:%d\n%b%bcontent-length:%d\n\n%b\0" % (
        leased.origin,
        message.priority - 1,
        when,
        headers.lines,
        len(message.body),
        message.body,
    )
    return tail, headers.expires


def redelivery_lines(attempts: int) -> bytes:
    """Return the header lines of a redelivery; `attempts` were counted before this one, 0 if not counted."""
    return b"redelivered:true\nattempt:%d\n" % (attempts + 1) if attempts else b"redelivered:true\n"


def message_head(subscription: str | None, destination: str, version: Version) -> bytes:
    """Return the first lines of a subscription's frames."""
    lines = header_line("destination", destination, version)
    if subscription is not None:
        lines = header_line("subscription", subscription, version) + lines
    return b"MESSAGE\n" + lines.encode()


def now_ms() -> int:
    return int(time.time() * 1000)


def slim_bodies(chunk: TailChunk) -> list[bytes]:
    """Return the bodies of a chunk without NULs, which the slim dialect cannot carry."""
    made: list[bytes] | None = chunk.rendered.get(NUL_FREE)
    if made is None:
        made = [body.replace(b"\0", b"") if b"\0" in body else body for body in chunk.entries.bodies]
        chunk.rendered[NUL_FREE] = made
    return made
