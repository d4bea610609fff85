"""Security checks before the pages: responses load nothing from other sites, and other sites cannot act
through a visitor's browser."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from nuncius.cluster.hosts import is_borrowed

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# The pages' scripts are inline and compiled in the browser; nothing is loaded from other sites.
POLICY = (
    b"default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline';"
    b" img-src 'self' data:; font-src 'self' data:; connect-src 'self' ws: wss:; object-src 'none';"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
]


class Guard:
    def __init__(self, app: Application, path: str) -> None:
        self.app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif not is_from_here(scope):
            await _refuse(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] in ("/", self._path):
            await _redirect(self._path + "/", send)
        else:
            await self.app(_as_asked(scope), receive, _guarded(send))


def is_from_here(scope: Scope) -> bool:
    """Return False for requests from other sites' pages, and for host names of other owners."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    host, local = headers.get(b"host", b""), scope.get("server")
    if local and is_borrowed(host.decode("latin-1").lower(), local[0]):
        return False
    origin = headers.get(b"origin")
    if origin is None:
        return True
    site = urlsplit(origin.decode("latin-1")).netloc.encode("latin-1")
    return site != b"" and site in (host, headers.get(b"x-forwarded-host"))


def _as_asked(scope: Scope) -> Scope:
    """Restore the host name that the visitor's browser knows, so that redirects through a node lead there."""
    asked = dict(scope["headers"]).get(b"x-forwarded-host")
    if asked is None:
        return scope
    headers = [(name, asked if name == b"host" else value) for name, value in scope["headers"]]
    return {**scope, "headers": headers}


def _guarded(send: Send) -> Send:
    async def guarded(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *HEADERS]
        await send(message)

    return guarded


async def _redirect(target: str, send: Send) -> None:
    headers = [(b"location", target.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 307, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
        return
    text = b"another site asked for this\n"
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": text})
