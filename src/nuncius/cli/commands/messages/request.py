"""`nuncius request` and `nuncius reply`: ask through a queue, and answer with a program."""

import os
from typing import Annotated

import typer

from nuncius.cli import output
from nuncius.cli.commands.messages.queue import FOLLOW_SECONDS, Queue
from nuncius.cli.commands.programs.programs import command_line, ended_badly, missing_command, run_program
from nuncius.cli.commands.queues import advice
from nuncius.cli.connection import BROKER, BrokerOptions, StreamOutput, Verbose, if_missing, run
from nuncius.cli.errors import FAILED, complain
from nuncius.cli.input import Headers, parse_headers
from nuncius.cli.output import StreamFormat
from nuncius.client import AsyncClient, Message

ERROR = "error"  # the header of an answer whose command failed, with the reason


def register(app: typer.Typer) -> None:
    app.command()(request)
    # All words after the queue belong to the command, options included.
    app.command(context_settings={"allow_interspersed_args": False})(reply)


def request(
    queue: Queue,
    body: Annotated[str, typer.Argument(help="The request.")],
    wait: Annotated[float, typer.Option(min=0.001, help="Seconds to wait for the answer.")] = 30.0,
    priority: Annotated[int, typer.Option("--priority", "-p", min=1, max=10, help="10 is taken first.")] = 5,
    header: Headers = None,
    verbose: Verbose = False,
    at: BrokerOptions = BROKER,
    form: StreamOutput = StreamFormat.TEXT,
) -> None:
    """Put a request into a queue and show the answer to it."""
    headers = parse_headers(header)

    async def work(client: AsyncClient) -> int | None:
        with if_missing(advice(queue)):
            answer = await client.request(
                queue, os.fsencode(body), priority=priority, headers=headers, timeout=wait
            )
        output.write_messages([answer], form, verbose=verbose)
        if ERROR in answer.headers:
            complain(f"the answer is an error: {answer.headers[ERROR]}")
            return FAILED
        return None

    run(work, at)


def reply(
    queue: Queue,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Run for every request: the body is its input, the answer its output."),
    ] = None,
    echo: Annotated[bool, typer.Option("--echo", help="Answer with the request itself.")] = False,
    number: Annotated[int | None, typer.Option("-n", min=1, help="End after so many.")] = None,
    at: BrokerOptions = BROKER,
) -> None:
    """Answer the requests of a queue with a command, until Ctrl-C. Options come before QUEUE."""
    program = command_line(command)
    if echo == bool(program):
        raise missing_command("name a command after the queue, or say --echo before it")

    async def work(client: AsyncClient) -> None:
        done = 0
        while number is None or done < number:
            with if_missing(advice(queue)):
                message = await client.take(queue, wait=FOLLOW_SECONDS)
            if message is not None:
                await _answer(client, message, program)
                done += 1

    run(work, at)


async def _answer(client: AsyncClient, message: Message, program: list[str]) -> None:
    answer, headers = await _outcome(message, program) if program else (message.body, None)
    if message.sender_id and message.context:
        await client.reply(message, answer, headers=headers)
    else:
        complain(f"message {message.message_id} is no request and gets no answer")
    if headers:
        complain(headers[ERROR])


async def _outcome(message: Message, program: list[str]) -> tuple[bytes, dict[str, str] | None]:
    status, answer = await run_program(program, message.body, keep_output=True)
    return answer, {ERROR: ended_badly(program, status)} if status else None
