"""Workers of a node ask each other: all who can answer do, and nobody waits for those who cannot."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from nuncius.broker.background import siblings
from nuncius.broker.background.siblings import Siblings


@asynccontextmanager
async def family(directory: Path, *numbers: int, count: int) -> AsyncIterator[list[Siblings]]:
    """Workers with these numbers, of so many."""
    async with AsyncExitStack() as stack:
        found = []
        for number in numbers:
            one = Siblings()
            one.answer("name", lambda greeting, number=number: f"{greeting} {number}")
            await one.open(directory, number, count)
            stack.callback(one.close)
            found.append(one)
        yield found


async def test_everybody_answers_by_number(tmp_path: Path) -> None:
    """Whoever is asked tells what all say, himself included."""
    async with family(tmp_path, 3, 1, 2, count=3) as everybody:
        for one in everybody:
            heard = await one.ask("name", "I am", kind=str)
            assert list(heard.said.items()) == [(1, "I am 1"), (2, "I am 2"), (3, "I am 3")]
            assert (heard.missing, one.are_several) == ([], True)


async def test_one_without_others_asks_nobody() -> None:
    """A node without workers answers for itself and listens nowhere."""
    alone = Siblings()
    alone.answer("name", lambda: "me")
    heard = await alone.ask("name", kind=str)
    assert (heard.said, heard.missing, alone.are_several) == ({1: "me"}, [], False)
    alone.close()


async def test_who_has_gone_is_missing_until_another_takes_the_number(tmp_path: Path) -> None:
    """What a dead worker leaves behind does no harm: neither to those who ask, nor to its successor."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "2.sock"))
    async with family(tmp_path, 1, count=3) as (one,):
        heard = await one.ask("name", "I am", kind=str)
        assert (heard.said, heard.missing) == ({1: "I am 1"}, [2, 3])
        async with family(tmp_path, 2, count=3):
            heard = await one.ask("name", "I am", kind=str)
            assert (heard.said, heard.missing) == ({1: "I am 1", 2: "I am 2"}, [3])


async def test_all_are_asked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two who answer only when both have been asked do answer."""
    monkeypatch.setattr(siblings, "ANSWER_SECONDS", 60.0)
    both = asyncio.Barrier(2)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await both.wait()
        writer.write(b"\xa2hi")
        writer.close()

    async with family(tmp_path, 1, count=3) as (one,):
        servers = [await asyncio.start_unix_server(answer, tmp_path / f"{n}.sock") for n in (2, 3)]
        assert (await one.ask("name", "I am", kind=str)).said == {1: "I am 1", 2: "hi", 3: "hi"}
        for server in servers:
            server.close()


async def test_a_worker_that_cannot_be_asked_still_serves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody may have removed the directory: that is logged, and the worker is missing for the others."""
    async with family(tmp_path / "gone", 1, count=2) as (one,):
        heard = await one.ask("name", "I am", kind=str)
    assert (heard.said, heard.missing) == ({1: "I am 1"}, [2])
    assert "other workers cannot ask this one" in caplog.text


async def test_who_hangs_is_left_out_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often one that hangs is asked, nobody waits for longer than that."""
    monkeypatch.setattr(siblings, "ANSWER_SECONDS", 0.2)
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(tmp_path / "2.sock"))
        hanging.listen(1)
        async with family(tmp_path, 1, 3, count=3) as (one, _), asyncio.timeout(60):
            for _ in range(5):  # more than wait to be accepted
                heard = await one.ask("name", "I am", kind=str)
                assert (list(heard.said), heard.missing) == ([1, 3], [2])


async def test_an_answer_of_another_kind_is_none(tmp_path: Path) -> None:
    """A worker of another version may answer something else, or nothing that can be read."""
    answers = [b"\xc1", b"", b"\x07"]  # no MessagePack, nothing, a number

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.write(answers.pop())
        writer.close()

    async with family(tmp_path, 1, count=2) as (one,):
        strange = await asyncio.start_unix_server(answer, tmp_path / "2.sock")
        while answers:
            assert (await one.ask("name", "I am", kind=str)).missing == [2]
        strange.close()
