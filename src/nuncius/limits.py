"""Limits on the parts of a message, the same for the client that sends it and the broker that stores it.

A check returns what is wrong, or None: each side raises its own exception.
"""

MAX_KEY = 1024  # characters
MAX_HEADERS = 64 << 10  # characters of their JSON text
INT32 = 2**31 - 1


def text_problem(what: str, text: str) -> str | None:
    """Refuse NUL and lone surrogates, which PostgreSQL's text cannot hold."""
    if "\0" in text:
        return f"{what} has no NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"{what} is valid Unicode"
    return None


def key_problem(key: str, longest: int = MAX_KEY) -> str | None:
    if len(key) > longest:
        return f"a key has at most {longest} characters"
    return text_problem("a key", key)


def headers_problem(text: str, longest: int = MAX_HEADERS) -> str | None:
    """Check the length of headers, as JSON text."""
    return f"headers have at most {longest} characters" if len(text) > longest else None


def priority_problem(priority: int) -> str | None:
    return None if 1 <= priority <= 10 else f"a priority is between 1 and 10, not {priority}"


def int32_problem(what: str, value: int) -> str | None:
    return None if 0 <= value <= INT32 else f"{what} is between 0 and {INT32}, not {value}"
