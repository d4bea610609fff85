"""Rules for the API's data that its types cannot express, in JSON Schema.

These rules describe checks that are made elsewhere: `RetentionRule.checked`, `to_bytes`, `check_keys`.
"""

from typing import Any

Schema = dict[str, Any]

BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_NULL: Schema = {"type": "null"}


def _with(**present: Schema) -> Schema:
    """Return the rule that these fields are present."""
    return {"properties": present, "required": sorted(present)}


def _retention(mode: str, **fields: Schema) -> Schema:
    others = {name: _NULL for name in ("seconds", "bytes") if name not in fields}
    is_default = mode == "forever"
    rule = _with(**fields)
    rule["properties"] |= {"mode": {"const": mode}, **others}
    rule["required"] = sorted([*rule["required"], *([] if is_default else ["mode"])])
    return rule


_AMOUNT: Schema = {"type": "integer"}
_RETENTION: Schema = {
    "oneOf": [
        _retention("forever"),
        _retention("subscribers"),
        _retention("time", seconds=_AMOUNT),
        _retention("size", bytes=_AMOUNT),
    ]
}
_TEXT_OR_BASE64: Schema = {
    "if": _with(encoding={"const": "base64"}),
    "then": {"properties": {"body": {"pattern": BASE64}}},
}
_TARGETS = ("to", "time", "positions")
_ONE_TARGET: Schema = {
    "oneOf": [
        {
            "properties": {name: {"not": _NULL}} | {each: _NULL for each in _TARGETS if each != name},
            "required": [name],
        }
        for name in _TARGETS
    ]
}

OF_STRUCTS: dict[str, Schema] = {
    "RetentionRule": _RETENTION,
    "NewMessage": _TEXT_OR_BASE64,
    "NewLetter": _TEXT_OR_BASE64,
    "Target": _ONE_TARGET,
}
