"""Nuncius: a message broker on PostgreSQL."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nuncius import testing
    from nuncius.client import AsyncClient, Client

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "__version__", "testing"]

_HOMES = {"AsyncClient": "nuncius.client", "Client": "nuncius.client"}


def __getattr__(name: str) -> object:
    """Load the clients and the testing tools on first use, because every command imports this file."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "testing":
        return import_module("nuncius.testing")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
