"""The other processes of the same node.

`nuncius up --workers N` runs several processes behind the same ports, and the kernel chooses which of them
a client meets. Who asks how the node does means all of them. So each worker listens on a socket of its own,
in a private directory of the supervisor's, and the one that is asked asks the others.

A question that comes over such a socket is answered for this process alone, so it cannot go round. Nothing of
this can be reached through a door, and who asks is not counted among a door's connections or requests.

Workers have numbers from 1 on. One that is replaced leaves its number and its socket to the next.
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
    """What the workers of a node answered, by their numbers."""

    said: dict[int, T]
    missing: list[int]
    """Who did not answer, or not in time."""


class Siblings:
    """The workers of a node as one of them sees them. A node without workers is the only one of its kind."""

    def __init__(self) -> None:
        self.number = self.count = 1
        self._directory = Path()
        self._answering: dict[str, Callable[..., Any]] = {}
        self._server: asyncio.Server | None = None

    @property
    def are_several(self) -> bool:
        return self.count > 1

    def answer(self, question: str, answering: Callable[..., Any]) -> None:
        """Says who answers a question, for this process alone."""
        self._answering[question] = answering

    async def open(self, directory: Path, number: int, count: int) -> None:
        """Listens, in place of whoever had this number before. A worker that cannot be asked still serves."""
        self._directory, self.number, self.count = directory, number, count
        try:
            self._server = await asyncio.start_unix_server(self._attend, self._socket(number))
        except OSError as error:
            log.warning("other workers cannot ask this one", extra={"worker": number, "error": str(error)})

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def ask(self, question: str, *about: object, kind: type[T]) -> Heard[T]:
        """What every worker says, this one included."""
        numbers = range(1, self.count + 1)
        content = msgspec.msgpack.encode((question, *about))
        others = [number for number in numbers if number != self.number]
        said: dict[int, T] = {self.number: self._answering[question](*about)}
        await asyncio.gather(*(self._ask(number, content, said, kind) for number in others))
        there = {number: said[number] for number in numbers if number in said}
        return Heard(there, [number for number in numbers if number not in said])

    async def _ask(self, number: int, content: bytes, said: dict[int, T], kind: type[T]) -> None:
        """Notes what another one says. Who has died, hangs or is of a version that answers otherwise says
        nothing."""
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
