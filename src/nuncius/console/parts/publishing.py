"""The form with which a visitor publishes a message."""

from collections.abc import Awaitable, Callable
from typing import Any

from nuncius.broker.errors import InvalidInput
from nuncius.console.parts.doing import Form


def publish_form(publish: Callable[[dict[str, Any]], Awaitable[str]], *, asks_topic: bool = False) -> Form:
    form = Form("Publish a message", "Publish", publish)
    if asks_topic:
        form.text("topic", "Topic", hint="It is made if there is none of that name.")
    form.text("body", "Body", long=True).text("key", "Key (may be empty)")
    return form.text("headers", "Headers, one a line: name: value", long=True)


def message_of(fields: dict[str, Any]) -> tuple[bytes, str | None, dict[str, str]]:
    """Return the body, the key and the headers that were typed."""
    headers = parse_headers(fields["headers"] or "")
    return (fields["body"] or "").encode(), fields["key"] or None, headers


def parse_headers(text: str) -> dict[str, str]:
    """Parse `name: value`, one per line."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise InvalidInput(f"write a header as name: value, not {line!r}")
        found[name.strip()] = value.strip()
    return found
