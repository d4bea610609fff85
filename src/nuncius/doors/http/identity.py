"""Requests with a key of their own, so that they can be repeated."""

import hashlib

import msgspec

from nuncius.broker.errors import InvalidInput

HEADER = b"idempotency-key"
MAX_KEY = 255


def check(key: str | None) -> str | None:
    if key is not None and not (0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
        raise InvalidInput(f"an Idempotency-Key has 1 to {MAX_KEY} visible ASCII characters")
    return key


_encode = msgspec.json.Encoder(order="deterministic").encode


def fingerprint(*content: object) -> bytes:
    """Return what tells a request from another one with the same key: the same for the same content, whatever
    the order of its fields."""
    return hashlib.sha256(b"\0".join(map(_flat, content))).digest()[:16]


def _flat(part: object) -> bytes:
    return hashlib.sha256(part if isinstance(part, bytes) else _encode(part)).digest()


def publisher_name(*parts: str) -> str:
    """Messages of a request with a key are the first and only ones of a publisher of their own."""
    digest = hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
    return f"http-{digest}"
