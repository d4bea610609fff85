"""The form in which a client's request is passed on."""

from collections.abc import Iterable

# Hop-by-hop headers: they belong to one connection, and a proxy has two. The body is passed on whole.
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection te trailer transfer-encoding upgrade expect"
    b" content-length".split()
)


def encode(method: bytes, url: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bytes:
    """Return a request with these end-to-end headers."""
    parts = [method, b" ", url, b" HTTP/1.1\r\n"]
    for name, value in headers:
        parts += (name, b": ", value, b"\r\n")
    if body or method not in (b"GET", b"HEAD"):
        parts.append(b"content-length: %d\r\n" % len(body))
    parts += (b"\r\n", body)
    return b"".join(parts)
