"""The origin of a call to the broker."""

import logging
from dataclasses import dataclass

ANONYMOUS = "anonymous"


@dataclass(slots=True, eq=False)
class Caller:
    """A client's connection, or the node itself, as the broker sees it.

    A listener makes one per connection and passes it with every call. Messages count under its door, calls of
    different callers share batches fairly, and calls of one caller keep their order. It is compared by
    identity: a client that connects again is another caller.
    """

    door: str
    """The name of its listener in counters, metrics and options."""
    connection: str
    """The id of its connection, as in the list of connections."""
    client: str = ""
    """The name by which the client introduced itself; empty if it did not."""
    is_read_only: bool = False
    """True if the client has registered as a reader."""
    account: str = ANONYMOUS
    """The account that the client uses: until accounts can be made, all clients use the same."""

    def log(self, log: logging.Logger, what: str, **facts: object) -> None:
        """Log a change that the caller has made."""
        caller = {"door": self.door, "connection": self.connection, "client": self.client}
        log.info(what, extra={**facts, **caller})


NODE = Caller("node", "node")
"""The node's own work: duties, and messages that go back to their queue."""
