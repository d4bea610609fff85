"""Reverse proxies in front of a node, and what they say of the clients behind them.

Any client can send the headers of a proxy. They count only where the connection comes from an address that a
setting names.
"""

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

FORWARDED_FOR = b"x-forwarded-for"
FORWARDED_USER = b"x-forwarded-user"
MAX_NAME = 200  # characters


class Proxies:
    """The proxies that are trusted, by address or network."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        """Raise ValueError if one is no address."""
        self._networks = tuple(ip_network(each, strict=False) for each in addresses)

    def trust(self, peer: str | None) -> bool:
        """Whether a connection from there is one of a trusted proxy."""
        address = _address(peer)
        return address is not None and any(address in each for each in self._networks)

    def client(self, peer: str | None, headers: Mapping[bytes, bytes]) -> str:
        """The address that a request came from: the last one that no trusted proxy has."""
        found = peer or "unknown"
        told = [each.strip() for each in headers.get(FORWARDED_FOR, b"").decode("latin-1").split(",")]
        while told and self.trust(found) and _address(told[-1]) is not None:
            found = told.pop()
        return found

    def user(self, peer: str | None, headers: Mapping[bytes, bytes]) -> str:
        """The user that a trusted proxy has let in; empty if it named none."""
        if not self.trust(peer):
            return ""
        return headers.get(FORWARDED_USER, b"").decode("utf-8", "replace")[:MAX_NAME]


def _address(text: str | None) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text or "")
    except ValueError:
        return None
