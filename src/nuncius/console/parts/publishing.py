"""Parse headers that a visitor typed."""

from nuncius.broker.errors import InvalidInput


def parse_headers(text: str) -> dict[str, str]:
    """Parse `name: value`, one per line."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise InvalidInput(f"write a header as name: value, not {line!r}")
        found[name.strip()] = value.strip()
    return found
