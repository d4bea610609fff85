"""Data that subscriptions to topics and to queues share: their connection, and the first lines of their
frames."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from nuncius.broker import Broker
from nuncius.doors.stomp.background import Background
from nuncius.doors.stomp.carrier import Carrier
from nuncius.doors.stomp.frames.versions import Version


@dataclass(frozen=True, slots=True, eq=False)
class StompConsumer:
    broker: Broker
    carrier: Carrier
    background: Background
    caller: Hashable
    ended: Callable[[Exception], None]
    """Called when the subscription fails."""
    version: Version
    number: int
    """The subscription's number within its connection."""
    head: bytes
    """The first lines of its frames."""
    is_acknowledged: bool
    is_cumulative: bool

    def ack_id(self, delivery: str, message_id: str) -> tuple[str, bytes]:
        """Return the id by which the client acknowledges a message, and the header line with that id. Before
        1.2 it is the message's id, without a line."""
        if self.version is Version.V12:
            name = f"{self.number}-{delivery}"
            return name, b"ack:%b\n" % name.encode()
        return message_id, b""
