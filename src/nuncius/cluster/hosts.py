"""By which names a node on this machine may be called.

A browser believes that a site is where its name leads. So the owner of a name can let it lead to 127.0.0.1
for a moment, and his pages, loaded in the visitor's browser, then speak to a node there as if it were their
own site. What gives them away is the name that they call the node by, in the header `Host`.
"""

from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

NEARBY = (".localhost", ".local", ".internal")


@lru_cache(maxsize=1024)  # most requests say the same
def is_borrowed(host: str, local: str, names: frozenset[str] = frozenset()) -> bool:
    """Whether a request that came in at the address `local` calls us by a name that anybody may own.

    Nobody owns an address, a name without a dot, or one that is for machines nearby. Who reaches a node from
    another machine may call it as he likes: it is there for others, and guarded by whoever put it there.
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
