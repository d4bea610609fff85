"""Fixtures for the ZeroMQ door; what they are made of is in peer."""

from collections.abc import AsyncIterator

import pytest

from doors.zeromq.peer import Node, Peer, connected, running_node


@pytest.fixture
async def node(dsn: str, no_safety_net: None) -> AsyncIterator[Node]:  # noqa: ARG001  (before it)
    async with running_node(dsn) as running:
        yield running


@pytest.fixture
async def ann(node: Node) -> AsyncIterator[Peer]:
    """A REQ socket."""
    async with connected(node) as peer:
        yield peer


@pytest.fixture
async def bob(node: Node) -> AsyncIterator[Peer]:
    """Another one."""
    async with connected(node) as peer:
        yield peer
