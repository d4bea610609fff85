"""Write the synchronous client from the asyncio client.

Run it with `.venv/bin/python tools/sync_client.py`. With `--check` it writes nothing, and fails if a file is
out of date; a test does the same.

Each public method of an asyncio class gets a twin that passes the call to the asyncio object, in the loop of
a background thread, and waits for the result. Signature and docstring are the same, but for the second
paragraph of a docstring, which is about asyncio alone. A method that only combines others is copied without
its awaits.
"""

import ast
import itertools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CLIENT = Path(__file__).parents[1] / "src" / "nuncius" / "client"
RENAMED = {
    "AsyncClient": "Client",
    "AsyncIterator": "Iterator",
    "AsyncLease": "Lease",
    "AsyncSubscription": "Subscription",
    "PendingSubscription": "Subscription",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
}
# Members that other classes of the client use.
INTERNAL = {
    *("attach", "confirm_place", "credit", "detach", "pause", "resume"),
    *("attach_soon", "attached", "broke_off", "confirm_soon", "failed", "is_attaching"),
    *("number", "prefetch", "received"),
}
COPIED = {"connect", "messages", "leases", "batches", "next_batch", "__aenter__", "__aiter__"}
BODIES = {
    "Client.open": """
try:
    self._background.call(self._async.open)
except BaseException:
    self.close()
    raise
""",
    "Client.close": "self._background.stop(self._async.close)",
    "Client.__exit__": "self.close()",
    "Subscription.__exit__": "self.close()",
    # The client may have been closed before, and its subscriptions with it.
    "Subscription.close": "with suppress(errors.Closed): self._background.call(self._async.close)",
}
SOON = ("publish", "put")
SOON_DOC = """Start `{}` and return at once. The future returns the receipt when the message is stored.
        Blocks only while 10,000 calls are open."""
IMPORTS = """
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from nuncius.client import errors
from nuncius.client.aio import TIMEOUT, AsyncClient
from nuncius.client.blocking.background import Background
from nuncius.client.blocking.lease import Lease
from nuncius.client.blocking.queues import SyncQueueCalls
from nuncius.client.blocking.subscription import Subscription
from nuncius.client.blocking.topics import SyncTopicCalls
from nuncius.client.connection.address import DEFAULT_URL
from nuncius.client.lease import AsyncLease
from nuncius.client.model import Body, Entry, Message, PutReceipt, QueueState, Receipt
from nuncius.client.model import SubscriptionState, TopicState
from nuncius.client.queue_calls import LONG_WAIT
from nuncius.client.subscription import PREFETCH, AsyncSubscription
"""
# The beginnings of classes: the client, one of its bases, and an object that it returns.
OWNER = """
def __init__({}) -> None:
    self._async = AsyncClient({})
    self._background = Background()
"""
PART = "_async: AsyncClient\n_background: Background"
RESULT = """
def __init__(self, {name}: Async{kind}, background: Background) -> None:
    self._async = {name}
    self._background = background
"""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Target:
    """A class of the synchronous client, in a file of its own."""

    file: str
    name: str
    sources: tuple[str, ...]
    """Files of the asyncio client. Their methods become those of the class."""
    about: str
    bases: str = ""


TARGETS = (
    Target("topics", "SyncTopicCalls", ("topic_calls",), "Topic methods of the synchronous client."),
    Target("queues", "SyncQueueCalls", ("queue_calls",), "Queue methods of the synchronous client."),
    Target("lease", "Lease", ("lease",), "A leased message, for synchronous programs."),
    Target(
        "subscription",
        "Subscription",
        ("subscription",),
        "Read a subscription without asyncio: messages in order, each once, across reconnects.",
    ),
    Target(
        "client",
        "Client",
        ("calls", "aio"),
        """The client for synchronous programs: the methods of `AsyncClient`, each of which waits.

An `AsyncClient` runs in a background thread; this class passes calls on and waits for results. Threads may
share a client, and throughput grows with the number of threads that publish at once: their messages share
packets and commits. A single thread gets the same effect with `publish_soon` and `put_soon`.""",
        "(SyncTopicCalls, SyncQueueCalls)",
    ),
)


def generate(target: Target) -> str:
    """Return the text of a file."""
    sources = [_source(file) for file in target.sources]
    made = ast.ClassDef(target.name, [], [], [], [])
    doc = ast.get_docstring(sources[-1], clean=False)
    if doc is not None:
        made.body.append(_docstring(doc))
    made.body += _beginning(target, sources[0])
    for source in sources:
        made.body += _properties(source)
        for method in _public(source):
            made.body += _twins(target, method)
    code = ast.unparse(ast.fix_missing_locations(made)).replace(":", f"{target.bases}:", 1)
    files = " and ".join(f"{file}.py" for file in target.sources)
    note = f"Generated by tools/sync_client.py from {files}; edit these."
    text = f'"""{target.about}\n\n{note}\n"""\n{_imports(target, code)}\n\n{code}'
    return _ruff("format", "-q", text=_ruff("check", "-q", "--fix-only", "--select=I", text=text))


def _source(file: str) -> ast.ClassDef:
    """Return the first class of a file of the asyncio client."""
    tree = ast.parse((CLIENT / f"{file}.py").read_text("utf-8"))
    return next(node for node in tree.body if isinstance(node, ast.ClassDef))


def _public(source: ast.ClassDef) -> Iterator[Function]:
    for node in source.body:
        if isinstance(node, Function) and (_is_public(node.name) or node.name in RENAMED):
            yield node


def _is_public(name: str) -> bool:
    return not name.startswith("_") and name not in INTERNAL


def _beginning(target: Target, source: ast.ClassDef) -> list[ast.stmt]:
    if target.name == "Client":
        (arguments,) = (
            node.args for node in source.body if isinstance(node, Function) and node.name == "__init__"
        )
        return ast.parse(OWNER.format(ast.unparse(arguments), _passed_on(arguments))).body
    if target.name.startswith("Sync"):
        return ast.parse(PART).body
    return ast.parse(RESULT.format(name=target.file, kind=target.name)).body


def _properties(source: ast.ClassDef) -> Iterator[ast.stmt]:
    """Make a property of each public attribute that the constructor sets with a type."""
    methods = (node for node in source.body if isinstance(node, Function))
    body = next((node.body for node in methods if node.name == "__init__"), [])
    for node, following in itertools.zip_longest(body, body[1:]):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            name, kind = node.target.attr, ast.unparse(node.annotation)
            if _is_public(name):
                doc = ast.unparse(following) if isinstance(following, ast.Expr) else ""
                yield from _parsed(
                    f"@property\ndef {name}(self) -> {kind}:\n {doc}\n return self._async.{name}"
                )


def _twins(target: Target, method: Function) -> Iterator[ast.stmt]:
    """Make the synchronous form of a method, and one that does not wait where there is one."""
    assert method.returns is not None
    name, doc = RENAMED.get(method.name, method.name), ast.get_docstring(method, clean=False)
    kind = ast.unparse(_Renaming().visit(method.returns))
    is_started = kind.startswith("Awaitable[")
    if is_started:
        kind = kind.removeprefix("Awaitable[").removesuffix("]")
    if body := BODIES.get(f"{target.name}.{name}"):
        yield _method(method, name, kind, doc, _parsed(body))
    elif method.name in COPIED:
        copied = method.body if doc is None else method.body[1:]
        yield _method(method, name, kind, doc, [_Copying().visit(statement) for statement in copied])
    else:
        yield _method(method, name, kind, doc, _waiting(method, kind, "ask" if is_started else "call"))
    if name in SOON:
        future = f"Future[{kind}]"
        yield _method(
            method, f"{name}_soon", future, SOON_DOC.format(name), _waiting(method, future, "start")
        )


def _method(method: Function, name: str, kind: str, doc: str | None, body: list[ast.stmt]) -> ast.stmt:
    about: list[ast.stmt] = [] if doc is None else [_docstring(doc)]
    returns = ast.parse(kind, mode="eval").body
    return ast.FunctionDef(name, method.args, about + body, method.decorator_list, returns)


def _docstring(text: str) -> ast.stmt:
    """Return a docstring without its part about asyncio."""
    text = text.partition("\n\n        ")[0]
    return ast.Expr(ast.Constant(text.replace("an `async with`", "a `with`")))


def _waiting(method: Function, kind: str, how: str) -> list[ast.stmt]:
    """Return the statements that pass a call to the asyncio object."""
    call = f"self._background.{how}(self._async.{method.name}, {_passed_on(method.args)})"
    if kind == "None":
        return _parsed(call)
    if kind == "Lease | None":
        return _parsed(f"lease = {call}\nreturn None if lease is None else Lease(lease, self._background)")
    if kind == "Subscription":
        call = f"Subscription({call}, self._background)"
    return _parsed(f"return {call}")


def _passed_on(arguments: ast.arguments) -> str:
    """Return the arguments of a call that passes all parameters on, except `self`."""
    passed = [each.arg for each in arguments.args[1:]]
    passed += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    passed += [f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
    return ", ".join(passed)


def _parsed(code: str) -> list[ast.stmt]:
    return ast.parse(code).body


class _Renaming(ast.NodeTransformer):
    """Replace the names of asyncio classes."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(RENAMED.get(node.id, node.id))


class _Copying(ast.NodeTransformer):
    """Remove each await. Private members are those of the asyncio object."""

    def visit_Await(self, node: ast.Await) -> ast.AST:
        assert isinstance(node.value, ast.Call)
        call: ast.Call = self.generic_visit(node.value)  # type: ignore[assignment]
        if ast.unparse(call.func).startswith("self._async."):
            return ast.Call(
                ast.parse("self._background.call", mode="eval").body, [call.func, *call.args], call.keywords
            )
        return call

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "self" and not _is_public(node.attr):
            node.value = ast.parse("self._async", mode="eval").body
        return node


def _imports(target: Target, code: str) -> str:
    """Return the imports that the code needs."""
    used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    lines = []
    for node in ast.parse(IMPORTS).body:
        assert isinstance(node, ast.ImportFrom)
        node.names = [each for each in node.names if each.name in used]
        if node.names and node.module != f"nuncius.client.blocking.{target.file}":
            lines.append(ast.unparse(node))
    return "\n".join(lines)


def _ruff(*command: str, text: str) -> str:
    given = [
        sys.executable,
        "-m",
        "ruff",
        *command,
        "--stdin-filename",
        str(CLIENT / "blocking" / "x.py"),
        "-",
    ]
    return subprocess.run(given, input=text, capture_output=True, text=True, check=True).stdout


def outdated() -> dict[Path, str]:
    """Return the files that differ from what the asyncio client says, with the text that they should have."""
    texts = {CLIENT / "blocking" / f"{target.file}.py": generate(target) for target in TARGETS}
    return {
        path: text for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text
    }


def main() -> None:
    for path, text in outdated().items():
        if "--check" in sys.argv:
            sys.exit(f"{path.name} is out of date: run tools/sync_client.py")
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
