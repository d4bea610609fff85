"""A node in a thread of its own, for clients that block."""

from contextlib import AbstractContextManager

from node_thread import in_a_thread
from telesto_peer import running_node


def node_in_a_thread(dsn: str, hold: float = 0.01) -> AbstractContextManager[int]:
    """The port of a node that runs until the end of the block."""
    return in_a_thread(running_node(dsn, hold))
