"""Message bodies as harmless text: nothing here produces HTML, and long bodies are cut."""

import json

SHOWN_BYTES = 16 << 10
PREVIEW_CHARACTERS = 80
_HEX_ROW = 16


def is_text(body: bytes) -> bool:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character in "\n\r\t" for character in text)


def as_text(body: bytes) -> str:
    """Return the first characters as text. Invalid and control characters are made visible."""
    shown = body[:SHOWN_BYTES].decode("utf-8", "replace")
    return "".join(visible(character) for character in shown)


def as_json(body: bytes) -> str | None:
    """Return indented JSON, or None if the body is not JSON or too long."""
    if len(body) > SHOWN_BYTES:
        return None
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return json.dumps(found, indent=2, ensure_ascii=False)


def as_hex(body: bytes) -> str:
    """Return offsets, bytes, and the characters they stand for."""
    shown = body[: SHOWN_BYTES // 4]
    lines = []
    for start in range(0, len(shown), _HEX_ROW):
        row = shown[start : start + _HEX_ROW]
        characters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<{3 * _HEX_ROW}} {characters}")
    return "\n".join(lines)


def preview(start: bytes, size: int) -> str:
    """Return one short line for a body that starts with these bytes."""
    # The cut may have split a character; the replacement mark it leaves is dropped.
    text = start.decode("utf-8", "replace").rstrip("\N{REPLACEMENT CHARACTER}")
    shown = "".join(" " if character in "\r\n\t" else visible(character) for character in text)
    if len(shown) > PREVIEW_CHARACTERS or len(start) < size:
        return shown[:PREVIEW_CHARACTERS] + "…"
    return shown


def visible(character: str) -> str:
    """Show control characters as symbols, and other unprintable ones, such as text direction marks, as
    codes."""
    if character.isprintable() or character in "\n\r\t":
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"


def file_name(*words: object) -> str:
    """Build a file name for a download, without characters that a file system or a shell interprets."""
    joined = "-".join(str(word) for word in words)
    kept = "".join(character if character.isalnum() or character in "-_." else "_" for character in joined)
    return kept.lstrip(".")[:100] + ".bin"
