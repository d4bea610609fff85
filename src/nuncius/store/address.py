"""Addresses of stores and nodes without the passwords in them."""

import re

_USER = re.compile(r"(?<=://)([^:/?#@\s]*):[^/?#\s]*@")
# One that was not escaped may hold characters that end this part of an address.
_UNESCAPED = re.compile(r"(?<=://)([^:/?#@\s]*):[^?\s]*@")
_PARAMETER = re.compile(r"(?<=[?&])((?:ssl)?password)=[^&#\s]*", re.IGNORECASE)


def shown(address: str) -> str:
    """Mask the passwords of an address, for messages and lists of processes."""
    return _PARAMETER.sub(r"\1=***", _UNESCAPED.sub(r"\1:***@", address))


def without_password(address: str) -> str:
    """Leave the passwords of an address out: a program that connects to it finds them elsewhere."""
    bare = _PARAMETER.sub("", _USER.sub(r"\1@", address))
    return re.sub(r"[?&]$", "", re.sub(r"([?&])&+", r"\1", bare))
