"""What subscriptions to topics and to queues have in common: whose they are, and how their frames begin."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from nuncius.broker import Broker
from nuncius.doors.stomp.background import Background
from nuncius.doors.stomp.carrier import Carrier
from nuncius.doors.stomp.frames.versions import Version


@dataclass(frozen=True, slots=True, eq=False)
class Consumer:
    broker: Broker
    carrier: Carrier
    background: Background
    caller: Hashable
    ended: Callable[[Exception], None]
    """Called when the subscription cannot go on."""
    version: Version
    number: int
    """Of the subscription within its connection."""
    head: bytes
    """The first lines of its frames."""
    is_acknowledged: bool
    is_cumulative: bool

    def ack_id(self, delivery: str, message_id: str) -> tuple[str, bytes]:
        """By which name the client acknowledges a message, and the line that tells it that name. Before 1.2
        it is the message's id."""
        if self.version is Version.V12:
            name = f"{self.number}-{delivery}"
            return name, b"ack:%b\n" % name.encode()
        return message_id, b""
