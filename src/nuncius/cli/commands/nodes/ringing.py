"""How commands call a node of a Tribbler ring: in Go's RPC, so that the node may be anybody's."""

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
    """JSON cannot carry bytes that are no text. They are replaced, as in the JSON-RPC of the same port."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def ask(node: str, timeout: float, method: str, arguments: msgspec.Struct, reply: type[S]) -> S:
    """What a node answers to one call."""
    return asyncio.run(_ask(node, timeout, method, arguments, reply))


async def _ask(node: str, timeout: float, method: str, arguments: msgspec.Struct, reply: type[S]) -> S:
    from nuncius.doors.tribbler.caller import Caller, RpcError
    from nuncius.ring.peers import Unreached
    from nuncius.ring.storage import NoAnswer

    caller = Caller(node)
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
