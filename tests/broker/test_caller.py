"""Every call of a client tells the broker who makes it."""

import ast
import inspect
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from nuncius.broker import Broker
from nuncius.broker.caller import NODE, Caller

SOURCE = Path(__file__).parent.parent.parent / "src" / "nuncius"
CLIENTS = [
    *(SOURCE / "doors").rglob("*.py"),
    *(SOURCE / "console").rglob("*.py"),
    *(SOURCE / "cluster").rglob("*.py"),
]


def operations(broker: Broker) -> dict[str, set[str]]:
    """Return the operations that take a caller, by the broker's room; "broker" is the broker itself."""
    rooms = {"broker": broker, **{name: room for name, room in vars(broker).items() if name[0] != "_"}}
    return {
        name: {
            each
            for each, method in inspect.getmembers(room, inspect.ismethod)
            if each[0] != "_" and "caller" in inspect.signature(method).parameters
        }
        for name, room in rooms.items()
        if type(room).__module__.startswith("nuncius.")
    }


def calls(path: Path) -> Iterator[tuple[str, str, ast.Call]]:
    """Yield the calls of a method of something: its last name, the method, and the call."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=room) | ast.Name(id=room), attr=name)):
                yield room.lstrip("_"), name, node


async def test_no_listener_forgets_the_caller(broker: Broker) -> None:
    """Listeners, the console and other nodes pass their caller with every operation that takes one."""
    taking = operations(broker)
    assert {"publish_soon", "fetch", "purge"} <= taking["topics"]
    assert "transaction" in taking["broker"]
    seen, forgotten = 0, []
    for path in CLIENTS:
        for room, name, call in calls(path):
            if name in taking.get(room, ()):
                seen += 1
                if not any(each.arg == "caller" for each in call.keywords):
                    forgotten.append(f"{path.name}:{call.lineno} {room}.{name}")
    assert forgotten == []
    assert seen > 50


async def test_changes_are_logged_with_their_caller(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """The log names the listener, the connection and the client that changed a queue or topic."""
    caplog.set_level(logging.INFO)
    caller = Caller("native", "native-7", "orders")
    queue = await broker.queues.create("q", caller=caller)
    await broker.queues.purge(queue.queue_id, caller=caller)
    await broker.queues.delete(queue.queue_id, caller=caller)
    await broker.topics.create("t", 2)
    logged = [
        (each.getMessage(), each.__dict__["connection"]) for each in caplog.records if "door" in each.__dict__
    ]
    assert logged == [
        ("queue created", "native-7"),
        ("queue purged", "native-7"),
        ("queue deleted", "native-7"),
        ("topic created", NODE.connection),
    ]
    assert caplog.records[-2].__dict__["client"] == "orders"
