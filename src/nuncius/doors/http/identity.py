"""Requests with a key of their own, so that they can be repeated."""

import hashlib

from nuncius.broker.errors import InvalidInput

HEADER = b"idempotency-key"
MAX_KEY = 255


def check(key: str | None) -> str | None:
    if key is not None and not (0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
        raise InvalidInput(f"an Idempotency-Key has 1 to {MAX_KEY} visible ASCII characters")
    return key


def publisher_name(*parts: str) -> str:
    """Messages of a request with a key are the first and only ones of a publisher of their own."""
    digest = hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
    return f"http-{digest}"
