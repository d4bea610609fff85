"""Fixtures for the Telesto door; what they are made of is in telesto_peer."""

from collections.abc import AsyncIterator

import pytest

from nuncius.doors.telesto.table import Dialect
from telesto_peer import Node, Peer, connected, running_node


@pytest.fixture
async def node(dsn: str) -> AsyncIterator[Node]:
    """A node that holds empty reads for a moment."""
    async with running_node(dsn) as running:
        yield running


@pytest.fixture(params=list(Dialect), ids=lambda dialect: dialect.value)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Both dialects, one after the other."""
    chosen: Dialect = request.param
    return chosen


@pytest.fixture
async def ann(node: Node, dialect: Dialect) -> AsyncIterator[Peer]:
    """A registered client."""
    async with connected(node, dialect, "ann") as peer:
        yield peer


@pytest.fixture
async def bob(node: Node, dialect: Dialect) -> AsyncIterator[Peer]:
    """Another registered client."""
    async with connected(node, dialect, "bob") as peer:
        yield peer


@pytest.fixture
async def stranger(node: Node, dialect: Dialect) -> AsyncIterator[Peer]:
    """A connection that has not said whose it is."""
    async with connected(node, dialect) as peer:
        yield peer
