"""Names by which a node on this machine may be addressed.

A browser takes the name in the URL for the identity of a site. So the owner of a name can point it at
127.0.0.1 for a moment, and a page of his, loaded in a visitor's browser, can then talk to a local node as if
it were its own site (DNS rebinding). Such requests are recognised by the name in their `Host` header.
"""

from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

NEARBY = (".localhost", ".local", ".internal")


@lru_cache(maxsize=1024)  # most requests have the same arguments
def is_borrowed(host: str, local: str, names: frozenset[str] = frozenset()) -> bool:
    """Return True if a request received at the address `local` addresses the node by a public name.

    Addresses, names without a dot and names for local networks cannot be registered, and are allowed. A node
    that is reached from another machine may have any name: its operator exposed it and protects it.
    """
    if not is_loopback(local):
        return False
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return True
    return "." in name and not (name.endswith(NEARBY) or name in names or _is_address(name))


def is_loopback(text: str) -> bool:
    try:
        return ip_address(text).is_loopback
    except ValueError:  # a Unix socket
        return False


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
