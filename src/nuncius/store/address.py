"""Addresses of stores and nodes without the passwords in them."""

import re

_USER = re.compile(r"(?<=://)([^:/?#@\s]*):[^/?#\s]*@")
# An unescaped password may contain characters that end this part of an address.
_UNESCAPED = re.compile(r"(?<=://)([^:/?#@\s]*):[^?\s]*@")
_PARAMETER = re.compile(r"(?<=[?&])((?:ssl)?password)=[^&#\s]*", re.IGNORECASE)


def shown(address: str) -> str:
    """Mask the passwords of an address, for messages and process lists."""
    return _PARAMETER.sub(r"\1=***", _UNESCAPED.sub(r"\1:***@", address))


def without_password(address: str) -> str:
    """Remove the passwords of an address. A program that connects to it gets them elsewhere."""
    bare = _PARAMETER.sub("", _USER.sub(r"\1@", address))
    return re.sub(r"[?&]$", "", re.sub(r"([?&])&+", r"\1", bare))
