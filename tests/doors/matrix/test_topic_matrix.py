"""The same message through every listener: whatever one protocol publishes, every other one reads."""

import pytest

from doors.matrix.house import open_house
from doors.matrix.topic_ways import READERS, TOPIC, WRITERS, Writer


@pytest.mark.parametrize("kind", WRITERS, ids=lambda kind: kind.__name__.removeprefix("Write"))
async def test_every_reader_gets_what_one_writer_publishes(
    dsn: str,
    no_safety_net: None,  # noqa: ARG001  (in force while it runs)
    kind: type[Writer],
) -> None:
    """Every reader gets all bodies of a writer, in order, byte for byte or as its page says."""
    writer = kind()
    async with open_house(dsn) as house:
        await house.native.create_topic(TOPIC)
        reading = {reader: reader().bodies(house) for reader in READERS}
        for bodies in reading.values():
            await anext(bodies)
        await writer.write(house, list(writer.carries.values()))
        for reader, bodies in reading.items():
            for name, body in writer.carries.items():
                assert await anext(bodies) == reader.renders(body), (reader.__name__, name)
            await bodies.aclose()
