"""Convert the broker's data to packets."""

from datetime import datetime

from nuncius.broker.model import FetchedEntries, Leased, Message
from nuncius.wire import packets

MAX_WAIT = 3600.0


def seconds(milliseconds: int) -> float:
    """Convert a client's waiting time to seconds, within bounds."""
    return min(max(milliseconds, 0) / 1000, MAX_WAIT)


def micros(time: datetime) -> int:
    return int(time.timestamp() * 1_000_000)


def wire_message(message: Message) -> packets.Message:
    return packets.Message(
        message.message_id,
        message.sender_id,
        message.receiver_id,
        message.context,
        message.priority,
        message.time,
        message.body,
        message.headers,
    )


def wire_leased(leased: Leased) -> packets.LeasedMessage:
    return packets.LeasedMessage(
        leased.lease_id, leased.attempts, leased.origin, wire_message(leased.message)
    )


def wire_entries(request: int, partition: int, entries: FetchedEntries) -> packets.Entries:
    return packets.Entries(
        request,
        partition,
        entries.first_offset,
        entries.times,
        entries.bodies,
        entries.keys,
        entries.headers,
    )
