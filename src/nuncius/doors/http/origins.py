"""Whose web pages may speak to a node.

A browser lets any page send requests and open WebSockets to any address it likes, also to a node on the
visitor's own machine, and there is no password in between. What it does tell is whose page it is, in the
header `Origin`, which a page cannot change. Programs send no such header and are not asked. And it tells by
which name it was sent here, which is a page's only as long as that name leads to its own site.
"""

import re
from collections.abc import Collection
from urllib.parse import urlsplit

from nuncius.cluster.hosts import is_borrowed
from nuncius.doors.http.exchange import Scope

_ORIGIN = re.compile(r"https?://[^/?#@\s]+")
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_OWN = {b"host", b"x-forwarded-host"}  # a proxy's word for what it was asked for; no page can send it


def is_origin(text: str) -> bool:
    """Whether browsers would write an origin like that: a scheme and a host, no path."""
    return _ORIGIN.fullmatch(text) is not None


class Origins:
    """The node's own pages are welcome, those of this machine, and those of sites that are named."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self._allowed = {origin.lower() for origin in allowed}
        self._names = frozenset(urlsplit(origin).hostname or "" for origin in allowed)

    def goes_by(self, name: str) -> None:
        """The node is called so by whoever started it."""
        self._names |= {name.lower()}

    def admit(self, scope: Scope) -> bool:
        """Whether a request may pass."""
        local = scope.get("server")
        for name, value in scope["headers"]:
            if name == b"origin" and not self._knows(value.decode("latin-1").lower(), scope):
                return False
            if name == b"host" and local:
                asked = value.decode("latin-1").lower()
                if is_borrowed(asked, local[0], self._names):
                    return False
        return True

    def is_allowed(self, origin: str) -> bool:
        """Whether this site is named in the settings."""
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
