"""Negotiate a connection from its CONNECT frame."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from nuncius import __version__
from nuncius.doors.stomp.frames.codec import encode
from nuncius.doors.stomp.frames.versions import Version, negotiate
from nuncius.doors.stomp.heartbeat import Rhythm, agree


@dataclass(frozen=True, slots=True)
class Introduction:
    """The negotiated parameters of a connection."""

    version: Version
    login: str
    client_id: str
    session: str
    rhythm: Rhythm
    minimum_ms: int

    def connected(self) -> bytes:
        """Return the CONNECTED frame. Its headers are not escaped; none of them needs it."""
        headers = {"version": self.version.value, "session": self.session, "server": f"nuncius/{__version__}"}
        if self.version is not Version.V10:
            rhythm, minimum = self.rhythm, str(self.minimum_ms)
            headers["heart-beat"] = f"{minimum if rhythm.send else 0},{minimum if rhythm.receive else 0}"
        return encode("CONNECTED", headers, b"", Version.V10)


def introduce(headers: Mapping[str, str], minimum_ms: int) -> Introduction | None:
    """Negotiate a connection. Return None if there is no common version."""
    version = negotiate(headers.get("accept-version"))
    if version is None:
        return None
    login = headers.get("login", "")
    rhythm = Rhythm(0, 0)
    if version is Version.V10:
        login = login.strip(" ")
    else:
        rhythm = agree(headers.get("heart-beat"), minimum_ms)
    return Introduction(version, login, headers.get("client-id", ""), new_session(), rhythm, minimum_ms)


def new_session() -> str:
    """Return a unique name for a connection."""
    return secrets.token_hex(8)
