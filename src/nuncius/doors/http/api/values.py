"""Convert values of a request to the types that an operation declares, with a clear error for invalid
ones."""

import re
from collections.abc import Callable, Collection
from decimal import Decimal
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from nuncius.broker.errors import InvalidInput

MOST_TOKENS = 100_000  # tokens of a body that are searched for numbers
MOST_DIGITS = 40
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?')
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)


def in_body(decode: Callable[[bytes], Any], content: bytes) -> Any:
    """Decode a JSON body. JSON has one kind of number: 5.0 is an integer like 5."""
    try:
        try:
            return decode(content)
        except msgspec.ValidationError as error:
            if "got `float`" not in str(error):
                raise
            return decode(_TOKEN.sub(_whole_token, content, count=MOST_TOKENS))
    except UnicodeDecodeError:
        raise InvalidInput("the body is not valid UTF-8") from None
    except RecursionError:
        raise InvalidInput("the body is nested too deeply") from None


def in_query(fields: dict[str, str], kind: type, integers: Collection[str]) -> Any:
    """Return the parameters of a query string. None of them is null: a missing value is absent."""
    for name in integers:
        if fields.get(name, "").lower() == "null":
            raise InvalidInput(f"{name} in the query string is a number")
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError:
        exact = {name: whole(text) if name in integers else text for name, text in fields.items()}
        return msgspec.convert(exact, kind, strict=False)


def in_path(name: str, kind: Any, value: bytes) -> Any:
    """Return a parameter of a path."""
    try:
        text = unquote_to_bytes(value).decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{name} in the path is not valid UTF-8") from None
    if "\0" in text:
        raise InvalidInput(f"{name} in the path has no NUL character")
    try:
        try:
            return msgspec.convert(text, kind, strict=False)
        except msgspec.ValidationError:
            return msgspec.convert(whole(text), kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{name} in the path: {error}") from None


def integers(struct: type[msgspec.Struct]) -> frozenset[str]:
    """Return the names of a struct's fields that are integers."""
    _, components = msgspec.json.schema_components([struct])
    properties = components[struct.__name__]["properties"]
    return frozenset(
        name
        for name, schema in properties.items()
        if any(each.get("type") == "integer" for each in (schema, *schema.get("anyOf", ())))
    )


def whole(text: str) -> str:
    """Return an integer that is written as 5.0 or 5e0 as 5, and any other text as it is."""
    if len(text) > MOST_DIGITS or not _NUMBER.fullmatch(text):
        return text
    value = float(text)
    if not value.is_integer() or abs(value) >= 1e19:
        return text
    return str(int(Decimal(text)))


def _whole_token(found: re.Match[bytes]) -> bytes:
    token = found[0]
    return token if token.startswith(b'"') else whole(token.decode()).encode()
