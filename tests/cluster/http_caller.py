"""A small HTTP client that keeps its connection, and makes another when that is gone."""

import asyncio
import json
from typing import Any


class Caller:
    def __init__(self, port: int) -> None:
        self.port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def call(
        self, method: str, path: str, fields: dict[str, Any] | None = None, *, key: str | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Status and JSON; OSError when there is no answer."""
        body = b"" if fields is None else json.dumps(fields).encode()
        head = f"{method} {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {len(body)}\r\n"
        if key is not None:
            head += f"idempotency-key: {key}\r\n"
        status, answer = await self.raw(head.encode() + b"\r\n" + body)
        return status, json.loads(answer)

    async def raw(self, request: bytes) -> tuple[int, bytes]:
        try:
            if self._writer is None:
                self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
            assert self._reader is not None
            self._writer.write(request)
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            return int(head.split()[1]), await self._reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError) as error:
            await self.close()
            raise ConnectionError("no answer") from error

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None
