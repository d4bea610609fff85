"""`nuncius kv`: the key-value store below Tribbler, a key at a time."""

from typing import Annotated

import typer

from nuncius.cli import output
from nuncius.cli.commands.nodes.ringing import NODE, TIMEOUT, Node, as_json, ask
from nuncius.cli.connection import Output, Timeout
from nuncius.cli.output import Format
from nuncius.client.errors import AlreadyExists, NotFound, NunciusError, Refused

Key = Annotated[str, typer.Argument(metavar="KEY", help="The part before ':' says where it is.")]
Value = Annotated[str, typer.Argument(metavar="VALUE", help="What to store.")]
Item = Annotated[str, typer.Argument(metavar="ITEM", help="An item of the list.")]

OK, NO_SUCH_KEY, NO_SUCH_ITEM, PUT_FAILED, ITEM_EXISTS = range(5)


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="The ring's key-value store: values and lists.", no_args_is_help=True)
    for command in (p, g, la, lr, lg):
        group.command()(command)
    app.add_typer(group, name="kv")


def p(key: Key, value: Value, node: Node = NODE, timeout: Timeout = TIMEOUT) -> None:
    """Put a value."""
    _check(_change("Put", key, value, node, timeout), key, value)
    output.write("stored")


def g(key: Key, node: Node = NODE, timeout: Timeout = TIMEOUT, form: Output = Format.TABLE) -> None:
    """Get a value."""
    from nuncius.doors.tribbler.storage_messages import GetReply, PlainGetArgs

    reply = ask(node, timeout, "StorageRPC.Get", PlainGetArgs(key), GetReply)
    _check(reply.status, key)
    if form is Format.JSON:
        output.write_document(as_json(reply.value))
    else:
        output.write(output.printable(reply.value))


def la(key: Key, item: Item, node: Node = NODE, timeout: Timeout = TIMEOUT) -> None:
    """Add an item to a list, which is made if there is none."""
    _check(_change("AppendToList", key, item, node, timeout), key, item)
    output.write("added")


def lr(key: Key, item: Item, node: Node = NODE, timeout: Timeout = TIMEOUT) -> None:
    """Remove an item from a list."""
    _check(_change("RemoveFromList", key, item, node, timeout), key, item)
    output.write("removed")


def lg(key: Key, node: Node = NODE, timeout: Timeout = TIMEOUT, form: Output = Format.TABLE) -> None:
    """Show a list, an item a line."""
    from nuncius.doors.tribbler.storage_messages import GetListReply, PlainGetArgs

    reply = ask(node, timeout, "StorageRPC.GetList", PlainGetArgs(key), GetListReply)
    _check(reply.status, key)
    if form is Format.JSON:
        output.write_document([as_json(item) for item in reply.value])
        return
    for item in reply.value:
        output.write(output.printable(item))
    if not reply.value:
        output.write("the list is empty")


def _change(method: str, key: str, value: str, node: str, timeout: float) -> int:
    from nuncius.doors.tribbler.storage_messages import PutArgs, PutReply

    return ask(node, timeout, f"StorageRPC.{method}", PutArgs(key, value), PutReply).status


def _check(status: int, key: str, item: str = "") -> None:
    if status == OK:
        return
    if status == NO_SUCH_KEY:
        raise NotFound(f"there is no key {key!r}")
    if status == NO_SUCH_ITEM:
        raise NotFound(f"there is no item {item!r} in {key!r}")
    if status == ITEM_EXISTS:
        raise AlreadyExists(f"there is an item {item!r} in {key!r} already")
    if status == PUT_FAILED:
        raise Refused(f"{key!r} could not be stored: a key has at most 1024 bytes, a value 8 MB")
    raise NunciusError(f"the node answered with status {status}")
