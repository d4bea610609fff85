"""Cross-origin resource sharing: let the pages of an allowed site read the node's answers.

A browser asks first (`OPTIONS`) whether a page may send a request that a form could not send, and shows the
page an answer only if it names the page's site.
"""

from collections.abc import MutableMapping
from typing import Any

from nuncius.doors.http.exchange import Scope, Send
from nuncius.doors.http.web.origins import Origins

ANY_HEADER = b"*, Authorization"  # the star does not include Authorization
EXPOSED = b"Allow, Content-Encoding, Content-Length, Location"
PREFLIGHT_SECONDS = b"600"


def sharing(origins: Origins, scope: Scope, send: Send) -> Send:
    """Return a `send` that adds the headers for the site that a request comes from, if it is allowed."""
    headers: list[tuple[bytes, bytes]] = [(b"vary", b"Origin")]
    asked: dict[bytes, bytes] = dict(scope["headers"])
    origin = asked.get(b"origin", b"")
    is_named = origins.names(origin.decode("latin-1"))
    if is_named:
        headers.append((b"access-control-allow-origin", origin))
        headers.append((b"access-control-expose-headers", EXPOSED))
    is_preflight = is_named and scope["method"] == "OPTIONS" and b"access-control-request-method" in asked

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *headers]
            if is_preflight:
                message["headers"] += _permission(dict(message["headers"]).get(b"allow", b""))
        await send(message)

    return sending


def _permission(methods: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers that answer a preflight request."""
    return [
        (b"access-control-allow-methods", methods),
        (b"access-control-allow-headers", ANY_HEADER),
        (b"access-control-max-age", PREFLIGHT_SECONDS),
    ]
