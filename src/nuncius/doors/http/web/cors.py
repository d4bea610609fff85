"""Cross-origin resource sharing: let the pages of an allowed site read the node's answers.

A browser asks first (`OPTIONS`) whether a page may send a request that a form could not send, and shows the
page an answer only if it names the page's site.
"""

from collections.abc import Callable

from nuncius.doors.http.exchange import Headers, Scope
from nuncius.doors.http.web.origins import Origins

ANY_HEADER = b"*, Authorization"  # the star does not include Authorization
EXPOSED = b"Allow, Content-Encoding, Content-Length, Location"
PREFLIGHT_SECONDS = b"600"


def sharing(origins: Origins, scope: Scope) -> Callable[[Headers], Headers]:
    """Return a function that adds the headers for the site that a request comes from, if it is allowed."""
    added: list[tuple[bytes, bytes]] = [(b"vary", b"Origin")]
    asked: dict[bytes, bytes] = dict(scope["headers"])
    origin = asked.get(b"origin", b"")
    is_named = origins.is_allowed(origin.decode("latin-1"))
    if is_named:
        added.append((b"access-control-allow-origin", origin))
        added.append((b"access-control-expose-headers", EXPOSED))
    is_preflight = is_named and scope["method"] == "OPTIONS" and b"access-control-request-method" in asked

    def share(headers: Headers) -> Headers:
        permission = _permission(dict(headers).get(b"allow", b"")) if is_preflight else []
        return [*headers, *added, *permission]

    return share


def _permission(methods: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers that answer a preflight request."""
    return [
        (b"access-control-allow-methods", methods),
        (b"access-control-allow-headers", ANY_HEADER),
        (b"access-control-max-age", PREFLIGHT_SECONDS),
    ]
