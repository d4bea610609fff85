"""Addresses of brokers: nuncius://host:port, or several hosts separated by commas."""

from nuncius.client.errors import InvalidInput

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9001
DEFAULT_URL = f"nuncius://{DEFAULT_HOST}:{DEFAULT_PORT}"
_SCHEME = "nuncius://"


def parse(url: str) -> list[tuple[str, int]]:
    """Return the addresses of a URL, in the order in which to try them."""
    if not url.startswith(_SCHEME):
        raise InvalidInput(f"a broker's address looks like {DEFAULT_URL}, not like {url!r}")
    return [_address(part) for part in url.removeprefix(_SCHEME).rstrip("/").split(",")]


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidInput(f"{text!r} is no address of the form host:port")
    return host.strip("[]"), int(port)
