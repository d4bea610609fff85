"""Offers of HTTP/2, which nobody has to accept.

Some clients, Java's among them, would rather speak HTTP/2 and say so in the head of every request. The parser
takes whatever follows such a head for the other protocol, and would lose the body: so it does not get to see
the offer.
"""

import re

_WORD = b"h2c"
_OFFER = re.compile(rb"(?i)\r\nupgrade:[ \t]*h2c[ \t]*(?=\r\n|$)")
_END = b"\r\n\r\n"


def declined(data: bytes) -> bytes:
    """What came on a connection, from the beginning or the middle of a head on, without the offer in it."""
    if _WORD not in data:
        return data
    head, end, rest = data.partition(_END)
    return _OFFER.sub(b"", head) + end + rest
