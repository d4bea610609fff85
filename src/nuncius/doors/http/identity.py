"""Idempotency keys, with which clients can repeat requests safely."""

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
    """Return a hash of a request's content, which tells it from another request with the same key. It does
    not depend on the order of fields."""
    return hashlib.sha256(b"\0".join(map(_flat, content))).digest()[:16]


def _flat(part: object) -> bytes:
    return hashlib.sha256(part if isinstance(part, bytes) else _encode(part)).digest()


def publisher_name(*parts: str) -> str:
    """Return the publisher for a request with a key: one publisher per request."""
    digest = hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
    return f"http-{digest}"
