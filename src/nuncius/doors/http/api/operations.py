"""Operations under /v1, each declared once: its route, checks and description follow from the declaration.

The parameters of a handler name their source: those named in the path come from there, `query` and `body` are
structs, `raw` is the unmodified body, `key` the header Idempotency-Key, `exchange` gives access to the rest.
The return type selects the answer: a struct is JSON, `Raw` is bytes, None is an empty answer.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import msgspec

from nuncius.doors.http import identity
from nuncius.doors.http.api import values
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.errors import Failed
from nuncius.doors.http.exchange import JSON, Exchange

PREFIX = b"/v1/"


def allow(methods: Iterable[str]) -> bytes:
    """Return the header Allow for a path that supports these methods."""
    return ", ".join(sorted({*methods, "OPTIONS"})).encode()


class Raw(msgspec.Struct, frozen=True):
    """Bytes that are sent unmodified."""

    content: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    handler: Callable[..., Awaitable[Any]]
    status: int
    tag: str
    changes: bool
    """True if the operation changes something. HEAD is offered only for a GET that does not."""
    streams: str | None
    """The content type of a streamed answer, which the handler sends itself."""
    in_path: dict[str, Any]
    query: type[msgspec.Struct] | None
    body: type[msgspec.Struct] | None
    takes_raw: bool
    takes_key: bool
    takes_exchange: bool
    answer: Any
    decode: Callable[[bytes], Any] = field(repr=False)
    integers: frozenset[str]
    """The parameters in the query string that are integers."""

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def summary(self) -> str:
        return (self.handler.__doc__ or "").strip()

    async def carry_out(self, desk: Desk, exchange: Exchange, parts: list[bytes]) -> None:
        arguments: dict[str, Any] = {}
        if parts:
            for (name, kind), value in zip(self.in_path.items(), parts, strict=True):
                arguments[name] = values.in_path(name, kind, value)
        if self.query is not None:
            is_given = exchange.scope["query_string"]
            given = values.in_query(exchange.query(), self.query, self.integers) if is_given else self.query()
            arguments["query"] = given
        if self.takes_key:
            key = exchange.headers.get(identity.HEADER)
            arguments["key"] = None if key is None else identity.check(key.decode("latin-1"))
        if self.body is not None:
            _check_media_type(exchange.headers.get(b"content-type", JSON))
            arguments["body"] = self._decoded(await exchange.body(desk.max_request))
        elif self.takes_raw:
            arguments["raw"] = await exchange.body(desk.broker.limits.max_body)
        else:
            await exchange.body(desk.max_request, is_wanted=False)  # it has to be read all the same
        if self.takes_exchange:
            arguments["exchange"] = exchange
        answer = await self.handler(desk, **arguments)
        if exchange.begun:
            return
        if answer is None:
            await exchange.nothing(self.status)
        elif type(answer) is Raw:
            headers = [(b"x-content-type-options", b"nosniff"), (b"content-security-policy", b"sandbox")]
            await exchange.answer(self.status, answer.content, answer.content_type.encode(), headers)
        else:
            await exchange.answer(self.status, _encode(answer))

    def _decoded(self, content: bytes) -> Any:
        if not content:
            raise Failed(400, "invalid", "the request has no body; send JSON")
        try:
            return self.decode(content)
        except (msgspec.ValidationError, UnicodeDecodeError, RecursionError):
            return values.in_body(self.decode, content)


_encode = msgspec.json.Encoder().encode


def _check_media_type(kind: bytes) -> None:
    if kind != JSON and kind.partition(b";")[0].strip().lower() != JSON:
        raise Failed(415, "unsupported_media_type", "send application/json")


def operation(
    method: str, path: str, *, status: int = 200, streams: str | None = None, consumes: bool = False
) -> Callable[[Callable[..., Awaitable[Any]]], Operation]:
    """Declare an operation. Its tag is the first word of the path. `consumes` is for a GET that changes
    something."""

    def declare(handler: Callable[..., Awaitable[Any]]) -> Operation:
        hints = get_type_hints(handler, include_extras=True)
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        parameters = set(inspect.signature(handler).parameters)
        body, query = hints.get("body"), hints.get("query")
        return Operation(
            method,
            path,
            handler,
            status,
            path.split("/")[2],
            consumes or method != "GET",
            streams,
            {name: hints[name] for name in names},
            query,
            body,
            "raw" in parameters,
            "key" in parameters,
            "exchange" in parameters,
            hints["return"],
            msgspec.json.Decoder(body).decode if body is not None else bytes,
            frozenset() if query is None else values.integers(query),
        )

    return declare


@dataclass(frozen=True, slots=True)
class Options:
    """The answer to OPTIONS: the methods of a path."""

    path: str
    allow: bytes

    async def carry_out(self, desk: Desk, exchange: Exchange, parts: list[bytes]) -> None:
        del desk, parts
        await exchange.nothing(204, [(b"allow", self.allow)])


class OperationRouter:
    """Router from paths to operations, part by part: names may contain anything, a slash as %2F, too."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root: dict[bytes | None, Any] = {}
        for each in operations:
            node = self._root
            for part in each.path.encode().removeprefix(PREFIX).split(b"/"):
                node = node.setdefault(None if part.startswith(b"{") else part, {})
            methods = node.setdefault(b"", {})
            methods[each.method] = each
            if each.method == "GET" and not each.changes:
                methods["HEAD"] = each
            methods["OPTIONS"] = Options(each.path, allow(methods))

    def find(self, method: str, path: bytes) -> "tuple[Operation | Options, list[bytes]]":
        node: Any = self._root
        parts = []
        for part in path[len(PREFIX) :].split(b"/"):
            following = node.get(part) if part else None
            if following is None:
                following = node.get(None) if part else None
                parts.append(part)
            if following is None:
                raise _nothing_there()
            node = following
        methods = node.get(b"")
        if methods is None:
            raise _nothing_there()
        found = methods.get(method)
        if found is None:
            allowed = allow(methods)
            sentence = f"this path takes {allowed.decode()}"
            raise Failed(405, "method_not_allowed", sentence, [(b"allow", allowed)])
        return found, parts


def _nothing_there() -> Failed:
    return Failed(404, "not_found", "there is nothing at this path; see /docs")
