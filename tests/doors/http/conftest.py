"""Fixtures for the HTTP door; what they are made of is in peer."""

from collections.abc import AsyncIterator

import pytest

from doors.http.peer import Node, running_node


@pytest.fixture
async def node(dsn: str, no_safety_net: None) -> AsyncIterator[Node]:  # noqa: ARG001  (before it)
    async with running_node(dsn) as running:
        yield running
