"""Processes that a node starts: workers and the console.

A child receives its orders on stdin, where passwords do not show up in process lists, and keeps stdin as its
leash. It reports once on stdout whether it has started.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from typing import TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


async def start(command: Sequence[str], orders: msgspec.Struct, descriptors: Sequence[int]) -> Process:
    """Start a child that inherits these descriptors. Ctrl-C on a terminal is for its parent alone."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, pass_fds=descriptors, start_new_session=True
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(orders) + b"\n")
    return process


async def first_report(process: Process, without: T) -> T:
    """Return the child's report, or `without` if it ended without one."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    return msgspec.json.decode(line, type=type(without)) if line else without


def read_orders(kind: type[T]) -> T:
    """Read the orders, in the child."""
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as unbuffered:
        return msgspec.json.decode(unbuffered.readline(), type=kind)


def report(document: msgspec.Struct) -> None:
    """Send the report, in the child."""
    sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
    sys.stdout.buffer.flush()
