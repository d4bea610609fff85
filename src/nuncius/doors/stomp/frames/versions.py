"""STOMP versions: negotiation, and each version's header syntax.

A header is one line, `name:value`. Special characters in it are escaped, and every version has more escapes
than the one before it: 1.0 none, 1.1 line feed, colon and backslash, 1.2 also the carriage return, because
its lines may end with one. So a header from another version or another protocol may be impossible to write in
an older version; then the nearest possible text is sent.
"""

import re
from collections.abc import Mapping
from enum import StrEnum


class StompError(Exception):
    """Invalid or forbidden bytes. The connection must end."""


class Version(StrEnum):
    V10 = "1.0"
    V11 = "1.1"
    V12 = "1.2"


SUPPORTED = ",".join(Version)

_UNESCAPED: dict[Version, dict[str, str]] = {
    Version.V10: {},
    Version.V11: {"n": "\n", "c": ":", "\\": "\\"},
    Version.V12: {"n": "\n", "c": ":", "\\": "\\", "r": "\r"},
}
_ESCAPES: dict[Version, dict[int, str]] = {
    version: {ord(plain): f"\\{letter}" for letter, plain in unescaped.items()}
    for version, unescaped in _UNESCAPED.items()
}
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)
_SPECIAL = re.compile(r"[\\:\r\n]")
_LINE_ENDS = {ord("\r"): " ", ord("\n"): " "}


def negotiate(accepted: str | None) -> Version | None:
    """Return the highest common version, given an `accept-version` list; None if there is none. Without a
    list it is 1.0."""
    if accepted is None:
        return Version.V10
    offered = {word.strip() for word in accepted.split(",")}
    return max((version for version in Version if version in offered), default=None)


def unescape(text: str, version: Version) -> str:
    """Unescape a header's name or value."""
    if version is Version.V10 or "\\" not in text:
        return text
    unescaped = _UNESCAPED[version]

    def plain(found: re.Match[str]) -> str:
        if found[1] not in unescaped:
            raise StompError(f"{found[0]!r} is no escape sequence of STOMP {version}")
        return unescaped[found[1]]

    return _ESCAPED.sub(plain, text)


def header_line(name: str, value: str, version: Version) -> str:
    """Return a header's line with its end, or an empty string if this version cannot express it."""
    if not _SPECIAL.search(name) and not _SPECIAL.search(value):
        return f"{name}:{value}\n"
    if version is Version.V10:
        if not name or ":" in name or name != name.translate(_LINE_ENDS):
            return ""
        return f"{name}:{value.translate(_LINE_ENDS)}\n"
    escapes = _ESCAPES[version]
    return f"{name.translate(escapes)}:{value.translate(escapes)}\n"


def header_lines(headers: Mapping[str, str], version: Version) -> str:
    return "".join([header_line(name, value, version) for name, value in headers.items()])
