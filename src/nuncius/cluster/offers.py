"""Remove offers of HTTP/2, which a server need not accept.

Some clients, Java's among them, offer HTTP/2 in the head of every request. After such a head, the parser
takes all that follows for the other protocol, and would lose the body: so the offer is removed before
parsing.
"""

import re

OFFER = b"h2c"
_LINE = re.compile(rb"(?i)\r\nupgrade:[ \t]*h2c[ \t]*(?=\r\n|$)")
_END = b"\r\n\r\n"


def declined(data: bytes) -> bytes:
    """Return received data without the offer. The data starts at the beginning or in the middle of a head."""
    if OFFER not in data:
        return data
    head, end, rest = data.partition(_END)
    return _LINE.sub(b"", head) + end + rest
