"""Content codings: compressed request bodies, and compressed answers for clients that accept them.

There is one coding, gzip: every client has it, and the standard library implements it.
"""

import asyncio
import re
import zlib
from collections.abc import Iterator

from nuncius.broker.errors import InvalidInput, TooLarge
from nuncius.broker.footprint import Footprint

WORTHWHILE = 1 << 10  # bytes of an answer; a smaller one fits into one packet anyway
INLINE = 64 << 10  # a larger body is compressed in a thread, and inflated in steps of this size
LEVEL = 4  # a higher level takes twice the time for a tenth of the size
GZIP = 16 + zlib.MAX_WBITS
VARY = (b"vary", b"Accept-Encoding")
GZIPPED = (b"content-encoding", b"gzip")
_TEXTUAL = re.compile(rb"text/|application/(json|xml|javascript|[\w.-]+\+(json|xml))\b", re.IGNORECASE)


class UnknownCoding(InvalidInput):
    """The body of a request is compressed in a way that the node does not support."""


def is_textual(content_type: bytes) -> bool:
    """Return whether compression makes a body of this type smaller. Other types are sent as they are."""
    return _TEXTUAL.match(content_type) is not None


def accepts_gzip(header: str) -> bool:
    """Return whether a client with this Accept-Encoding prefers gzip to plain bytes."""
    weights = {}
    for part in header.lower().split(","):
        coding, _, parameter = part.partition(";")
        weights[coding.strip()] = _weight(parameter)
    gzip = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    return gzip > 0 and gzip >= weights.get("identity", 0.0)


def _weight(parameter: str) -> float:
    name, _, value = parameter.partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


async def compressed(content: bytes) -> bytes:
    if len(content) <= INLINE:
        return _compress(content)
    return await asyncio.to_thread(_compress, content)


def _compress(content: bytes) -> bytes:
    compressing = zlib.compressobj(LEVEL, wbits=GZIP)
    return compressing.compress(content) + compressing.flush()


async def decoded(body: bytes, coding: str, most: int, footprint: Footprint) -> bytes:
    """Return the plain body of a request. Inflating stops when the body exceeds the limit. Meanwhile the
    connection's footprint includes its size."""
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return body
    if coding not in ("gzip", "x-gzip"):
        raise UnknownCoding(f"the body is compressed as {coding[:40]!r}; send it plain or as gzip")
    size = 0
    parts: list[bytes] = []
    try:
        for piece in _inflated(body):
            if parts:
                await asyncio.sleep(0)  # lets other requests proceed between two steps
            parts.append(piece)
            size += len(piece)
            if size > most:
                raise TooLarge(f"the body of this request has at most {most} bytes")
            footprint.begin(size)
    except zlib.error:
        raise InvalidInput("the body is not valid gzip") from None
    finally:
        footprint.begin(0)
    return b"".join(parts)


def _inflated(body: bytes) -> Iterator[bytes]:
    """Yield the plain bytes in pieces of a bounded size."""
    inflating = zlib.decompressobj(GZIP)
    rest = memoryview(body)
    while rest.nbytes:
        data, rest = bytes(rest[:INLINE]), rest[INLINE:]
        while True:
            piece = inflating.decompress(data, INLINE)
            if not piece:
                break
            yield piece
            data = inflating.unconsumed_tail
        if inflating.eof:
            break
    if not inflating.eof or inflating.unused_data or rest.nbytes:
        raise InvalidInput("the body is not one whole gzip stream")
