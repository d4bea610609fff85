"""The bodies that go through every pair of listeners, and the limits of those that carry text only."""

TEXTS = {
    "empty": "",
    "word": "hello",
    "blanks": "  two  words ",
    "lines": "first\nsecond\r\n\tthird",
    "json": '{"a": "\\"quoted\\" \\\\ \\u00e9"}',
    "backslashes": "\\x00ff01 \\n \\\\",
    "scripts": "äß 中文 عربى 🦊",
    "frame": "SEND\ndestination:/topic/forged\n\nbody",
    "long": "x" * 900 + "é" * 50,
}
NUL = {"nul": "a\0b\0"}
BYTES = {"latin": "é".encode("latin-1") + b"x", "random": bytes(range(256)) * 3}
LARGE = {"large": b"0123456789abcdef" * 20_000}

PLAIN_TEXT = {name: text.encode() for name, text in TEXTS.items()}
ANY_TEXT = PLAIN_TEXT | {name: text.encode() for name, text in NUL.items()} | LARGE
ANY_BYTES = ANY_TEXT | BYTES


def exact(body: bytes) -> bytes:
    return body


def replaced(body: bytes) -> bytes:
    """Show a body as listeners do that answer with text only: U+FFFD for bytes that are no UTF-8."""
    return body.decode(errors="replace").encode()


def without_nuls(body: bytes) -> bytes:
    """Show a body as the slim dialect does, in which a NUL ends the frame."""
    return body.replace(b"\0", b"")
