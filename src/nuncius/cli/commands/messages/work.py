"""`nuncius work`: run a program for each message of a queue. Messages are redelivered if it fails."""

import asyncio
import contextlib
import signal
from typing import Annotated

import typer

from nuncius.cli.commands.messages.queue import FOLLOW_SECONDS, As, Queue
from nuncius.cli.commands.programs.programs import command_line, ended_badly, missing_command, run_program
from nuncius.cli.commands.queues import advice
from nuncius.cli.connection import BROKER, BrokerOptions, if_missing, run
from nuncius.cli.errors import complain
from nuncius.client import AsyncClient, AsyncLease, InvalidInput, LeaseLost, NunciusError, OutcomeUnknown

STOPPED = "the worker was stopped"


def register(app: typer.Typer) -> None:
    # All words after the queue belong to the command, options included.
    app.command(context_settings={"allow_interspersed_args": False})(work)


def work(
    queue: Queue,
    command: Annotated[
        list[str] | None, typer.Argument(help="Run for every message: the body is its input.")
    ] = None,
    number: Annotated[int | None, typer.Option("-n", min=1, help="End after so many.")] = None,
    name: As = "",
    at: BrokerOptions = BROKER,
) -> None:
    """Work on the messages of a queue with a command, until Ctrl-C. When the command fails, or the worker
    does, its message comes again. Options come before QUEUE."""
    program = command_line(command)
    if not program:
        raise missing_command("name a command after the queue")

    async def work_on_all(client: AsyncClient) -> None:
        # Service managers send SIGTERM: treat it like Ctrl-C.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, signal.raise_signal, signal.SIGINT)
        done = 0
        while number is None or done < number:
            with if_missing(advice(queue)):
                lease = await client.lease(queue, wait=FOLLOW_SECONDS)
            if lease is not None:
                await _work_on(lease, program)
                done += 1

    run(work_on_all, at, name=name)


async def _work_on(lease: AsyncLease, program: list[str]) -> None:
    try:
        status, _ = await run_program(program, lease.message.body, keep_output=False)
    except asyncio.CancelledError:
        with contextlib.suppress(NunciusError):  # the end of the connection causes redelivery, too
            await lease.release(STOPPED)
        raise
    except InvalidInput:
        await lease.release()  # the program could not start
        raise
    try:
        if status:
            complain(ended_badly(program, status))
            await lease.release(ended_badly(program, status))
        else:
            await lease.settle()
    except (LeaseLost, OutcomeUnknown) as error:
        complain(f"message {lease.message.message_id}: {error}")
