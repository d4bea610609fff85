"""OpenAPI description of the report's API, in both spellings."""

from typing import Any, NamedTuple

import msgspec

import nuncius

Schema = dict[str, Any]

_DIGITS: Schema = {"type": "string", "pattern": "^[0-9]{1,11}$"}
_ID: Schema = {"anyOf": [{"type": "integer"}, _DIGITS], "description": "A number, or a string of digits."}
_NAME: Schema = {"type": "string", "minLength": 1}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A request sent again with the same key is carried out once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
_TEXT: Schema = {"type": "string"}
_FIELDS: dict[str, Schema] = {
    "name": _NAME,
    "topic": _NAME,
    "topic_name": _NAME
    | {"description": "As `topic`; the answer comes in the sentences of the report's programs."},
    "producer_id": _ID,
    "consumer_id": _ID,
    "message": _TEXT,
    "encoding": {
        "enum": ["utf-8", "base64"],
        "description": "What the message is answered as. Bytes that are no UTF-8 become U+FFFD in text.",
    },
    "partition": {"description": "A number, or the partition's name: TOPIC.N."},
    "port": _ID,
    "broker_id": _ID,
}
_NUMBER: Schema = {"type": "integer"}
_NAMES: Schema = {"type": "array", "items": _TEXT}
_TOPIC = ("topic", "topic_name")


class Described(NamedTuple):
    """An endpoint: its required fields (of a pair, one is enough), its optional fields, and its answer."""

    method: str
    path: str
    summary: str
    required: tuple[str | tuple[str, str], ...]
    answer: Schema
    optional: tuple[str, ...] = ()


_SAID: Schema = {"message": _TEXT}
_TOPICS: Schema = {"topics": _NAMES, "message": _NAMES}
_READING = (_TOPIC, "consumer_id")
_AS = ("encoding",)
_CONSUME, _SIZE = "Take the next message.", "How many messages a consumer has not read."
_REMOVE = "No longer count on a broker."
_MAKE = "Make a topic."
_REGISTER_PRODUCER = "Become a producer of a topic, which is made if there is none."
_REGISTER_CONSUMER = "Become a consumer of a topic, which reads it from the beginning."

ENDPOINTS = (
    Described("GET", "/topics", "All topics, in the order in which they were made.", (), _TOPICS),
    Described("POST", "/topics", _MAKE, (("name", "topic_name"),), _SAID),
    Described("POST", "/producer/register", _REGISTER_PRODUCER, (_TOPIC,), {"producer_id": _NUMBER} | _SAID),
    Described(
        "POST",
        "/producer/produce",
        "Send a message to a topic.",
        (_TOPIC, "producer_id", "message"),
        {},
        ("partition",),
    ),
    Described("POST", "/consumer/register", _REGISTER_CONSUMER, (_TOPIC,), {"consumer_id": _NUMBER} | _SAID),
    Described("GET", "/consumer/consume", _CONSUME, _READING, _SAID, _AS),
    Described("POST", "/consumer/consume", _CONSUME, _READING, _SAID, _AS),
    Described("GET", "/size", _SIZE, _READING, {"size": _NUMBER}),
    Described(
        "POST", "/partition", "Add a partition to a topic.", (_TOPIC,), {"partitions": _NUMBER} | _SAID
    ),
    Described(
        "POST",
        "/broker",
        "Count on the broker with this HTTP port.",
        ("port",),
        {"broker_id": _NUMBER} | _SAID,
    ),
    Described("DELETE", "/broker/remove", _REMOVE, ("broker_id",), _SAID),
    Described("POST", "/broker/remove", _REMOVE, ("broker_id",), _SAID),
)
_FAILURES = {
    400: "The request failed; `message` says why.",
    403: "A page of another site sent the request.",
    503: "The store does not answer, or the node has too much to do.",
}
_KEYED = ("/producer/produce", "/consumer/consume")


def document() -> bytes:
    """Return the description in OpenAPI 3.1, as JSON."""
    paths: dict[str, dict[str, Any]] = {}
    for each in ENDPOINTS:
        found: dict[str, Any] = {
            "operationId": each.method.lower() + each.path.title().replace("/", ""),
            "summary": each.summary,
            "responses": _responses(each.answer),
        }
        parameters = [_KEY] if each.path in _KEYED else []
        if each.method in ("GET", "DELETE"):
            parameters += _parameters(each)
        else:
            found["requestBody"] = _body(each)
        if parameters:
            found["parameters"] = parameters
        paths.setdefault(each.path, {})[each.method.lower()] = found
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Nuncius: the partitioned queue",
                "version": nuncius.__version__,
                "description": "Fields come in the query string or in a JSON body, with every method.",
            },
            "paths": paths,
        }
    )


def _parameters(each: Described) -> list[Schema]:
    """Return the fields as parameters; of a pair the course's name is shown."""
    required = [name if isinstance(name, str) else name[0] for name in each.required]
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _FIELDS[name]}
        for name in (*required, *each.optional)
    ]


def _body(each: Described) -> Schema:
    """Return the fields as a JSON object."""
    names = [name for name in each.required if isinstance(name, str)]
    pairs = [name for name in each.required if not isinstance(name, str)]
    schema: Schema = {
        "type": "object",
        "properties": {name: _FIELDS[name] for name in (*names, *each.optional)},
        "required": names,
    }
    if pairs:
        schema["anyOf"] = [
            {"properties": {name: _FIELDS[name]}, "required": [name]} for pair in pairs for name in pair
        ]
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _responses(answer: Schema) -> Schema:
    success = {
        "type": "object",
        "properties": {"status": {"const": "success"}, **answer},
        "required": ["status", *answer],
    }
    failure = {
        "type": "object",
        "properties": {"status": {"const": "failure"}, "message": _TEXT},
        "required": ["status", "message"],
    }
    found = {"200": {"description": "Done.", "content": {"application/json": {"schema": success}}}}
    for status, description in _FAILURES.items():
        content = {"application/json": {"schema": failure}}
        found[str(status)] = {"description": description, "content": content}
    return found
