"""The description of the API, made from the declarations of its operations."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

import nuncius
from nuncius.doors.http.api.operations import Operation, Raw
from nuncius.doors.http.api.rules import OF_STRUCTS
from nuncius.doors.http.errors import Problem
from nuncius.doors.http.identity import MAX_KEY

_REF = "#/components/schemas/{name}"
SCHEMA_PREFIX = "V1"  # of classes that would have the name of another one; the document leaves it out
PROBLEMS = {
    400: "Something in the request is wrong.",
    403: "A page of another site sent the request.",
    404: "There is no such thing.",
    409: "The name is taken, or something has changed hands.",
    413: "The body is too large.",
    415: "The body is of another kind, or compressed in another way than gzip.",
    422: "The Idempotency-Key was sent before, with another request.",
    503: "The store does not answer.",
}
ALWAYS = (400, 403, 404, 503)


def document(operations: Sequence[Operation]) -> bytes:
    """Return the description in OpenAPI 3.1, as JSON."""
    types = [kind for each in operations for kind in (each.body, each.query, each.answer) if _is_struct(kind)]
    _, components = msgspec.json.schema_components([*types, Problem], ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, components)
    used = {
        name.removeprefix(SCHEMA_PREFIX): schema | OF_STRUCTS.get(name, {})
        for name, schema in components.items()
        if name not in _queries(operations)
    }
    found = msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Nuncius",
                "version": nuncius.__version__,
                "description": "Queues, topics and subscriptions. "
                "Every message is in PostgreSQL before it is acknowledged.",
            },
            "paths": paths,
            "components": {"schemas": used},
        }
    )
    for before in (b'"#/components/schemas/', b'"title":"'):
        found = found.replace(before + SCHEMA_PREFIX.encode(), before)
    return found


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not Raw


def _queries(operations: Sequence[Operation]) -> set[str]:
    return {each.query.__name__ for each in operations if each.query is not None}


def _operation(each: Operation, components: dict[str, Any]) -> dict[str, Any]:
    parameters = [*_parameters(each, components)]
    found: dict[str, Any] = {
        "operationId": each.name,
        "summary": re.split(r"(?<=\.)\s", each.summary)[0],
        "description": " ".join(each.summary.split()),
        "tags": [each.tag],
        "responses": _responses(each),
    }
    if parameters:
        found["parameters"] = parameters
    if each.body is not None:
        schema = {"$ref": _REF.format(name=each.body.__name__)}
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    elif each.takes_raw:
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        found["requestBody"] = {
            "required": False,
            "description": "The message. Without a body the message is empty.",
            "content": content,
        }
    return found


def _parameters(each: Operation, components: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, kind in each.in_path.items():
        yield {"name": name, "in": "path", "required": True, "schema": msgspec.json.schema(kind)}
    if each.query is not None:
        described = components[each.query.__name__]
        for name, schema in described["properties"].items():
            required = name in described.get("required", ())
            yield {"name": name, "in": "query", "required": required, "schema": _not_null(schema)}
    if each.takes_key:
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "Messages sent again with the same key are stored once.",
            "schema": {"type": "string", "minLength": 1, "maxLength": MAX_KEY, "pattern": "^[!-~]+$"},
        }
    if each.streams is not None:
        yield {
            "name": "Last-Event-ID",
            "in": "header",
            "required": False,
            "description": "Go on behind this event.",
            "schema": {"type": "string", "pattern": "^[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*$"},
        }


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null from a schema: a parameter of a query string is absent instead."""
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return choices[0] if len(choices) == 1 else schema


def _responses(each: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if each.streams is not None:
        content = {each.streams: {"schema": {"type": "string"}}}
    elif each.answer is Raw:
        content = {"*/*": {"schema": {"type": "string", "format": "binary"}}}
    elif _is_struct(each.answer):
        content = {"application/json": {"schema": {"$ref": _REF.format(name=each.answer.__name__)}}}
    done: dict[str, Any] = {"description": "Done."}
    if content:
        done["content"] = content
    found = {str(each.status): done}
    statuses = [*ALWAYS]
    if each.method != "GET":
        statuses.append(409)
    if each.body is not None or each.takes_raw:
        statuses += [413, 415]
    if each.takes_key:
        statuses.append(422)
    problem = {"application/json": {"schema": {"$ref": _REF.format(name=Problem.__name__)}}}
    for status in sorted(statuses):
        found[str(status)] = {"description": PROBLEMS[status], "content": problem}
    return found
