"""Reverse proxies in front of a node, and the clients that they report.

Any client can send the headers of a proxy. They count only if the connection comes from a configured address.
"""

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

FORWARDED_FOR = b"x-forwarded-for"
FORWARDED_USER = b"x-forwarded-user"
MAX_NAME = 200  # characters


class Proxies:
    """The trusted proxies, by address or network."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        """Parse the addresses. Raises ValueError for an invalid one."""
        self._networks = tuple(ip_network(each, strict=False) for each in addresses)

    def trust(self, peer: str | None) -> bool:
        """Return True if the peer is a trusted proxy."""
        address = _address(peer)
        return address is not None and any(address in each for each in self._networks)

    def client(self, peer: str | None, headers: Mapping[bytes, bytes]) -> str:
        """Return the address that a request came from: the last one that is no trusted proxy."""
        found = peer or "unknown"
        told = [each.strip() for each in headers.get(FORWARDED_FOR, b"").decode("latin-1").split(",")]
        while told and self.trust(found) and _address(told[-1]) is not None:
            found = told.pop()
        return found

    def user(self, peer: str | None, headers: Mapping[bytes, bytes]) -> str:
        """Return the user that a trusted proxy has named, or an empty text."""
        if not self.trust(peer):
            return ""
        return headers.get(FORWARDED_USER, b"").decode("utf-8", "replace")[:MAX_NAME]


def _address(text: str | None) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text or "")
    except ValueError:
        return None
