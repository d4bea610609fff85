"""What every TCP door does alike."""

import asyncio

from nuncius.broker import Broker
from nuncius.doors.telesto.door import TelestoDoor


async def test_one_port_for_all_addresses_of_a_name(broker: Broker) -> None:
    """Where a host has several addresses, any free port is the same one on all of them."""
    door = TelestoDoor(broker)
    addresses = ["127.0.0.1", "127.0.0.2"]  # as a name may stand for both families' loopback
    port = await door.open(addresses, 0)  # type: ignore[arg-type]
    try:
        for address in addresses:
            _, writer = await asyncio.open_connection(address, port)
            writer.close()
    finally:
        await door.close()
