"""Fixtures for the STOMP door; what they are made of is in peer."""

from collections.abc import AsyncIterator

import pytest

from doors.stomp.peer import Node, Peer, connected, running_node
from nuncius.doors.stomp.frames.versions import Version


@pytest.fixture
async def node(dsn: str, no_safety_net: None) -> AsyncIterator[Node]:  # noqa: ARG001  (before it)
    """A node that repeats failed deliveries quickly."""
    async with running_node(dsn) as running:
        yield running


@pytest.fixture(params=list(Version), ids=str)
def version(request: pytest.FixtureRequest) -> Version:
    """All versions, one after the other."""
    chosen: Version = request.param
    return chosen


@pytest.fixture
async def ann(node: Node) -> AsyncIterator[Peer]:
    """A connection that speaks 1.2."""
    async with connected(node) as peer:
        yield peer


@pytest.fixture
async def bob(node: Node) -> AsyncIterator[Peer]:
    """Another one."""
    async with connected(node) as peer:
        yield peer
