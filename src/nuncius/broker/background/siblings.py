"""The other processes of the same node.

`nuncius up --workers N` runs several processes behind the same ports, and the kernel chooses which of them
serves a client. A question about the node means all of them. So each worker listens on a socket of its own,
in a private directory of the supervisor, and the worker that is asked asks the others.

A question over such a socket is answered for this process alone, so it cannot circulate. The sockets cannot
be reached through a door, and questions do not count among a door's connections or requests.

Workers have numbers from 1 on. A replaced worker leaves its number and its socket to the next.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

log = logging.getLogger(__name__)

ANSWER_SECONDS = 2.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Heard(Generic[T]):
    """Answers of the workers of a node, by their numbers."""

    said: dict[int, T]
    missing: list[int]
    """Workers that did not answer in time."""


class Siblings:
    """The workers of a node, as seen by one of them. A node without workers counts as a single worker."""

    def __init__(self) -> None:
        self.number = self.count = 1
        self._directory = Path()
        self._answering: dict[str, Callable[..., Any]] = {}
        self._server: asyncio.Server | None = None

    @property
    def are_several(self) -> bool:
        return self.count > 1

    def answer(self, question: str, answering: Callable[..., Any]) -> None:
        """Register the function that answers a question for this process."""
        self._answering[question] = answering

    async def open(self, directory: Path, number: int, count: int) -> None:
        """Listen, in place of the last worker of this number. A worker that cannot listen still serves."""
        self._directory, self.number, self.count = directory, number, count
        try:
            self._server = await asyncio.start_unix_server(self._attend, self._socket(number))
        except OSError as error:
            log.warning("other workers cannot ask this one", extra={"worker": number, "error": str(error)})

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def ask(self, question: str, *about: object, kind: type[T]) -> Heard[T]:
        """Return the answers of all workers, this one included."""
        numbers = range(1, self.count + 1)
        content = msgspec.msgpack.encode((question, *about))
        others = [number for number in numbers if number != self.number]
        said: dict[int, T] = {self.number: self._answering[question](*about)}
        await asyncio.gather(*(self._ask(number, content, said, kind) for number in others))
        there = {number: said[number] for number in numbers if number in said}
        return Heard(there, [number for number in numbers if number not in said])

    async def _ask(self, number: int, content: bytes, said: dict[int, T], kind: type[T]) -> None:
        """Add the answer of another worker. One that is dead, hangs or runs another version gives none."""
        with contextlib.suppress(OSError, TimeoutError, msgspec.MsgspecError):
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_unix_connection(self._socket(number))
                with contextlib.closing(writer):
                    writer.write(content)
                    writer.write_eof()
                    said[number] = msgspec.msgpack.decode(await reader.read(), type=kind)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            question, *about = msgspec.msgpack.decode(await reader.read())
            writer.write(msgspec.msgpack.encode(self._answering[question](*about)))

    def _socket(self, number: int) -> str:
        return str(self._directory / f"{number}.sock")
