"""Requests of the report's clients: fields in the query string or in a JSON body, on GET as well.

There are two spellings. A client that sends `topic_name` gets the texts that the authors' programs print.
"""

from typing import Any

import msgspec

from nuncius.broker.background.actors import MAX_ID
from nuncius.broker.errors import TooLarge
from nuncius.doors.http.exchange import Exchange

ABSENT = "Required fields absent in request"
NOT_JSON = "The request body is not valid JSON"


class ReportRefused(Exception):
    """A failure, with the text that the report's clients know."""


class Fields(msgspec.Struct, gc=False):
    """All fields that a request of the report may have. Their types are checked when they are used."""

    name: Any = None
    topic: Any = None
    topic_name: Any = None
    producer_id: Any = None
    consumer_id: Any = None
    message: Any = None
    partition: Any = None
    port: Any = None
    broker_id: Any = None
    encoding: Any = None

    @property
    def says_topic_name(self) -> bool:
        return self.topic_name is not None

    def topic_of(self) -> str:
        name = text(self.topic_name if self.topic_name is not None else self.topic)
        if "\0" in name:
            raise ReportRefused("A name has no NUL character")
        return name


_decode = msgspec.json.Decoder(Fields).decode


async def read(exchange: Exchange, most: int) -> Fields:
    body = await _body(exchange, most)
    if body and not body.isspace():
        try:
            fields = _decode(body)
        except msgspec.ValidationError:
            raise ReportRefused("The request body is not a JSON object") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ReportRefused(NOT_JSON) from None
    else:
        fields = Fields()
    if exchange.scope["query_string"]:
        for name, value in exchange.query().items():
            if name in Fields.__struct_fields__ and getattr(fields, name) is None:
                setattr(fields, name, value)
    return fields


async def _body(exchange: Exchange, most: int) -> bytes:
    try:
        return await exchange.body(most)
    except TooLarge as error:
        raise ReportRefused(str(error)) from None


def text(value: Any) -> str:
    if value is None or value == "":
        raise ReportRefused(ABSENT)
    if type(value) is not str:
        raise ReportRefused("A name or a message is a string")
    return value


def number(value: Any, wrong: str) -> int:
    """Return an id given as a number or a string of digits. Refuse anything else with the text `wrong`."""
    if value is None or value == "":
        raise ReportRefused(ABSENT)
    if type(value) is int:
        return value
    if type(value) is str and value.isascii() and value.isdecimal() and len(value) < 12:
        return int(value)
    if type(value) is float and value.is_integer():
        return int(value)
    raise ReportRefused(wrong)


def partition(value: Any, topic: str) -> int | None:
    """Return a partition given by its number, or by its name: that of the topic, a full stop, and the
    number."""
    if value is None:
        return None
    if type(value) is str:
        value = value.removeprefix(f"{topic}.")
    wrong = f"Partition {value} doesn't exist"
    chosen = number(value, wrong)
    if not 0 < chosen <= MAX_ID:
        raise ReportRefused(wrong)
    return chosen
