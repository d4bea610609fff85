"""Decide which web pages may use a node.

A browser lets any page send requests and open WebSockets to any address, also to a node on the visitor's own
machine, and no password is in between. But it names the page's site: in the header `Origin`, or, where it
sends none (an image, a script, a link), in `Sec-Fetch-Site`. A page cannot change these headers. Programs
send neither and are not checked. The header `Host` is the name under which the node was called: a name that
its owner could point to any address is not the node's.
"""

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from nuncius.cluster.hosts import is_borrowed
from nuncius.doors.http.errors import Failed
from nuncius.doors.http.exchange import Scope

FOREIGN: Final = Failed(
    403,
    "not_allowed",
    "a page of another site sent this request, or it calls the node by a name that is not the node's: "
    "see --allow-origin; docs/console.md has settings for proxies",
)
NO_HOST: Final = Failed(400, "invalid", "a request has exactly one header Host")

_ORIGIN = re.compile(r"https?://[^/?#@\s]+")
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_OWN = {b"host", b"x-forwarded-host"}  # a proxy passes on the host it was asked for; no page can send it
_OWN_SITE = {b"same-origin", b"none"}  # none: the visitor typed the address
# GET changes something here: a message is consumed, a group's member gives partitions up.
_CONSUMES = re.compile(rb"/+consumer/consume$|/+v1/.+/members/[^/]+/messages$")


def is_origin(text: str) -> bool:
    """Return whether a text is an origin as browsers write it: a scheme and a host, no path."""
    return _ORIGIN.fullmatch(text) is not None


def consumes(path: bytes) -> bool:
    """Return whether a GET of this path changes something."""
    return _CONSUMES.match(path) is not None


class Origins:
    """Admit the node's own pages, those of this machine, and those of allowed sites."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self._allowed = {origin.lower() for origin in allowed}
        self._names = frozenset(urlsplit(origin).hostname or "" for origin in allowed)

    def goes_by(self, name: str) -> None:
        """Add the name that the node was started under."""
        self._names |= {name.lower()}

    def admit(self, scope: Scope) -> bool:
        """Return whether a request may pass."""
        return self.refusal(scope) is None

    def refusal(self, scope: Scope) -> Failed | None:
        """Return why a request may not pass, or None if it may."""
        local = scope.get("server")
        hosts, site, is_known = 0, b"", False
        for name, value in scope["headers"]:
            if name == b"host":
                hosts += 1
                if local and is_borrowed(value.decode("latin-1").lower(), local[0], self._names):
                    return FOREIGN
            elif name == b"origin":
                if not self._knows(value.decode("latin-1").lower(), scope):
                    return FOREIGN
                is_known = True
            elif name == b"sec-fetch-site":
                site = value
        if hosts != 1 and (hosts or scope.get("http_version") == "1.1"):
            return NO_HOST
        if site and not is_known and site not in _OWN_SITE and not _opens_a_page(scope):
            return FOREIGN
        return None

    @property
    def has_named(self) -> bool:
        """Return whether any site is allowed."""
        return bool(self._allowed)

    def is_allowed(self, origin: str) -> bool:
        """Return whether this site is allowed by the settings."""
        return origin.lower() in self._allowed

    def _knows(self, origin: str, scope: Scope) -> bool:
        if origin in self._allowed:
            return True
        try:
            site = urlsplit(origin)
            host = site.hostname
        except ValueError:
            return False
        if not host:
            return False
        own = {value.decode("latin-1").lower() for name, value in scope["headers"] if name in _OWN}
        return host in _LOOPBACK or host.endswith(".localhost") or site.netloc in own


def _opens_a_page(scope: Scope) -> bool:
    """Return whether the visitor follows a link: the answer is shown as a page of its own, and nothing
    changes."""
    headers = dict(scope["headers"])
    return (
        scope.get("method") in ("GET", "HEAD")
        and headers.get(b"sec-fetch-mode") == b"navigate"
        and headers.get(b"sec-fetch-dest") == b"document"
        and not consumes(scope["raw_path"])
    )
