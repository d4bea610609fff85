"""The description of the report's API, in both spellings: what its clients send, and what they get."""

from typing import Any

import msgspec

import nuncius

Schema = dict[str, Any]

MAX_ID = 2**31 - 1
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
_FIELDS: dict[str, Schema] = {
    "name": _NAME,
    "topic": _NAME,
    "topic_name": _NAME
    | {"description": "As `topic`; the answer comes in the sentences of the report's programs."},
    "producer_id": _ID,
    "consumer_id": _ID,
    "message": {"type": "string", "minLength": 1},
    "encoding": {
        "enum": ["utf-8", "base64"],
        "description": "What the message is answered as. Bytes that are no UTF-8 become U+FFFD in text.",
    },
    "partition": {"description": "A number, or the partition's name: TOPIC.N."},
    "port": _ID,
    "broker_id": _ID,
}
_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "integer"}
_NAMES: Schema = {"type": "array", "items": _TEXT}
_TOPIC = ("topic", "topic_name")

# Method and path, a summary, what is required (of a pair one of the two), what else there is, and the answer.
ENDPOINTS: tuple[tuple[str, str, str, tuple[str | tuple[str, ...], ...], tuple[str, ...], Schema], ...] = (
    (
        "GET",
        "/topics",
        "All topics, in the order in which they were made.",
        (),
        (),
        {"topics": _NAMES, "message": _NAMES},
    ),
    ("POST", "/topics", "Make a topic.", (("name", "topic_name"),), (), {"message": _TEXT}),
    (
        "POST",
        "/producer/register",
        "Become a producer of a topic, which is made if there is none.",
        (_TOPIC,),
        (),
        {"producer_id": _NUMBER, "message": _TEXT},
    ),
    (
        "POST",
        "/producer/produce",
        "Send a message to a topic.",
        (_TOPIC, "producer_id", "message"),
        ("partition",),
        {},
    ),
    (
        "POST",
        "/consumer/register",
        "Become a consumer of a topic, which reads it from the beginning.",
        (_TOPIC,),
        (),
        {"consumer_id": _NUMBER, "message": _TEXT},
    ),
    (
        "GET",
        "/consumer/consume",
        "Take the next message.",
        (_TOPIC, "consumer_id"),
        ("encoding",),
        {"message": _TEXT},
    ),
    (
        "POST",
        "/consumer/consume",
        "Take the next message.",
        (_TOPIC, "consumer_id"),
        ("encoding",),
        {"message": _TEXT},
    ),
    (
        "GET",
        "/size",
        "How many messages a consumer has not read.",
        (_TOPIC, "consumer_id"),
        (),
        {"size": _NUMBER},
    ),
    (
        "POST",
        "/partition",
        "Add a partition to a topic.",
        (_TOPIC,),
        (),
        {"message": _TEXT, "partitions": _NUMBER},
    ),
    (
        "POST",
        "/broker",
        "Count on the broker with this HTTP port.",
        ("port",),
        (),
        {"broker_id": _NUMBER, "message": _TEXT},
    ),
    ("DELETE", "/broker/remove", "No longer count on a broker.", ("broker_id",), (), {"message": _TEXT}),
    ("POST", "/broker/remove", "No longer count on a broker.", ("broker_id",), (), {"message": _TEXT}),
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
    for method, path, summary, required, optional, answer in ENDPOINTS:
        found: dict[str, Any] = {
            "operationId": method.lower() + path.title().replace("/", ""),
            "summary": summary,
            "responses": _responses(answer),
        }
        parameters = [_KEY] if path in _KEYED else []
        if method in ("GET", "DELETE"):
            parameters += _parameters(required, optional)
        else:
            found["requestBody"] = _body(required, optional)
        if parameters:
            found["parameters"] = parameters
        paths.setdefault(path, {})[method.lower()] = found
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


def _parameters(required: tuple[str | tuple[str, ...], ...], optional: tuple[str, ...]) -> list[Schema]:
    """Return the fields as parameters; of a pair the course's name is shown."""
    names = [name if isinstance(name, str) else name[0] for name in required]
    fields = [(name, True) for name in names] + [(name, False) for name in optional]
    return [
        {"name": name, "in": "query", "required": is_required, "schema": _FIELDS[name]}
        for name, is_required in fields
    ]


def _body(required: tuple[str | tuple[str, ...], ...], optional: tuple[str, ...]) -> Schema:
    pairs = [name for name in required if not isinstance(name, str)]
    names = [name for name in required if isinstance(name, str)]
    each = [*names, *optional, *(name for pair in pairs for name in pair)]
    schema: Schema = {"type": "object", "properties": {name: _FIELDS[name] for name in each}}
    if names:
        schema["required"] = names
    if pairs:
        schema["anyOf"] = [{"required": [name]} for pair in pairs for name in pair]
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
