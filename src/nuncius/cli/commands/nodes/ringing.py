"""Calls of commands to a node of a Tribbler ring: in Go's RPC, so that any implementation can answer."""

import asyncio
from typing import Annotated, TypeVar

import msgspec
import typer

from nuncius.client.errors import CannotConnect, Refused
from nuncius.client.errors import Timeout as TooLate
from nuncius.store import environment

NODE = "127.0.0.1:9009"
TIMEOUT = 30.0

Node = Annotated[
    str,
    typer.Option(
        "--node",
        metavar="HOST:PORT",
        envvar=environment.TRIBBLER,
        help="A node of the ring; it reaches all others.",
    ),
]
S = TypeVar("S", bound=msgspec.Struct)


def as_json(text: str) -> str:
    """Replace bytes that are not UTF-8, which JSON cannot carry, as the JSON-RPC of the same port does."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def ask(node: str, timeout: float, method: str, arguments: msgspec.Struct, reply: type[S]) -> S:
    """Call a node and return its answer."""
    return asyncio.run(_ask(node, timeout, method, arguments, reply))


async def _ask(node: str, timeout: float, method: str, arguments: msgspec.Struct, reply: type[S]) -> S:
    from nuncius.doors.tribbler.rpc_client import RpcClient, RpcError
    from nuncius.ring.peers import Unreached
    from nuncius.ring.storage import NoAnswer

    caller = RpcClient(node)
    try:
        return await caller.call(method, arguments, reply, seconds=timeout)
    except Unreached as error:
        raise CannotConnect(f"{error}; start a node with: nuncius tribbler") from None
    except NoAnswer as error:
        raise TooLate(str(error)) from None
    except RpcError as error:
        raise Refused(f"the node says: {error}") from None
    finally:
        caller.close()
