"""The clients of the demonstration: one for every door, each as simple as its protocol allows."""

import asyncio
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from nuncius.cli.http import NoHttpAnswer, exchange

ANSWER_SECONDS = 20.0


class HttpPeer:
    """A client that sends and receives JSON."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def call(self, method: str, path: str, body: object = None) -> Any:
        content = None if body is None else msgspec.json.encode(body)
        status, text = exchange(self._url, method, path, content, timeout=ANSWER_SECONDS)
        if status >= 300:
            raise NoHttpAnswer(f"{method} {path} answers with status {status}: {text.decode()[:200]}")
        return msgspec.json.decode(text) if text else None

    def unread(self, topic: str, subscriber: str) -> list[str]:
        path = f"/v1/topics/{quote(topic, safe='')}/subscriptions/{quote(subscriber, safe='')}/messages"
        return [each["body"] for each in self.call("GET", path)["messages"]]


class StompPeer:
    """A client of STOMP 1.2 that writes frames by hand."""

    def __init__(self, port: int, login: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        self._heard = b""
        self.send("CONNECT", {"accept-version": "1.2", "host": "demo", "login": login})
        self.receive("CONNECTED")

    def send(self, command: str, headers: dict[str, str], body: str = "") -> None:
        lines = [command, *(f"{name}:{value}" for name, value in headers.items()), "", body]
        self._socket.sendall("\n".join(lines).encode() + b"\0")

    def ask(self, command: str, headers: dict[str, str], body: str = "") -> None:
        """Send a frame and wait for its receipt, which says that the broker has stored it."""
        self.send(command, {**headers, "receipt": "done"}, body)
        self.receive("RECEIPT")

    def receive(self, command: str) -> tuple[dict[str, str], str]:
        """Receive the next frame, which must be of this kind. Return its headers and its body."""
        while b"\0" not in self._heard:
            data = self._socket.recv(1 << 16)
            if not data:
                raise NoHttpAnswer("the STOMP door has hung up")
            self._heard += data
        frame, _, self._heard = self._heard.partition(b"\0")
        head, _, body = frame.lstrip(b"\n").decode().partition("\n\n")
        first, *lines = head.split("\n")
        if first != command:
            raise NoHttpAnswer(f"the STOMP door answers {first} instead of {command}: {head} {body}")
        return dict(line.split(":", 1) for line in lines), body

    def close(self) -> None:
        self._socket.close()


class SqlPeer:
    """A client that executes SQL statements in the store."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def rows(self, sql: str, *arguments: object) -> list[Any]:
        return asyncio.run(self._rows(sql, arguments))

    async def _rows(self, sql: str, arguments: tuple[object, ...]) -> list[Any]:
        import asyncpg

        connection = await asyncpg.connect(self._dsn)
        try:
            return list(await connection.fetch(sql, *arguments))
        finally:
            await connection.close()


def directory_for_clients(data_dir: Path) -> Path:
    """Return the directory in which ZeroMQ clients keep their positions."""
    place = data_dir.parent / "demo-clients"
    place.mkdir(exist_ok=True)
    return place
