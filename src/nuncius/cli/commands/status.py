"""`nuncius status`: the state of a node and its store."""

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import typer

from nuncius.cli import output
from nuncius.cli.commands.queues import write_queues
from nuncius.cli.commands.topics import document, write_subscriptions, write_topics
from nuncius.cli.connection import BROKER, BrokerOptions, Output, run
from nuncius.cli.output import Cell, Format
from nuncius.client import AsyncClient

SIZES = {"bytes": "database", "accepted_bytes": "not answered yet"}


def register(app: typer.Typer) -> None:
    app.command()(status)


def status(at: BrokerOptions = BROKER, form: Output = Format.TABLE) -> None:
    """Show node, store, queues, topics, subscriptions, what could not be delivered and who is inactive."""

    async def work(client: AsyncClient) -> None:
        begin = time.perf_counter()
        await client.ping()
        there_and_back = time.perf_counter() - begin
        facts, queues, topics, subscriptions = await asyncio.gather(
            client.status(), client.queues(), client.topics(), client.subscriptions()
        )
        failures = facts.pop("failures", [])
        inactive = facts.pop("inactive", [])
        if form is Format.JSON:
            output.write_document(
                {
                    "url": at.url,
                    "ping_ms": round(there_and_back * 1000, 3),
                    "node": facts,
                    "queues": queues,
                    "topics": [document(topic) for topic in topics],
                    "subscriptions": subscriptions,
                    "failures": failures,
                    "inactive": inactive,
                }
            )
            return
        shown: dict[str, Cell] = {"url": at.url, "ping": f"{there_and_back * 1000:.1f} ms"}
        for name, value in facts.items():
            if name in SIZES:
                shown[SIZES[name]] = output.size(int(value))
            elif isinstance(value, dict):
                parts = [f"{what} {count:,}" for what, count in value.items() if count]
                shown[name] = ", ".join(parts) or "none"
            else:
                shown[name] = value if isinstance(value, int) else str(value)
        output.write_facts(shown)
        output.write("")
        write_queues(queues)
        output.write("")
        write_topics(topics)
        output.write("")
        write_subscriptions(subscriptions)
        if failures:
            output.write("")
            write_failures(failures)
        if inactive:
            output.write("")
            write_inactive(inactive)

    run(work, at)


def write_inactive(actors: Sequence[dict[str, Any]]) -> None:
    """Print the producers, consumers and brokers that have been silent for too long."""
    output.write_table(
        ("inactive", "id", "last active"),
        [
            (each["kind"], each["id"], output.since(datetime.fromisoformat(each["last_active"])))
            for each in actors
        ],
        empty="",
    )


def write_failures(failures: Sequence[dict[str, Any]]) -> None:
    """Print failed deliveries by destination and subscriber: their count, the most attempts for one message,
    the time and reason of the last failure."""
    output.write_table(
        ("destination", "subscriber", "not delivered", "attempts", "last", "reason"),
        [
            (
                each["destination"],
                each["subscriber"] or "-",
                each["failures"],
                each["attempts"],
                output.since(datetime.fromisoformat(each["last_failure"])),
                each["reason"] or "-",
            )
            for each in failures
        ],
        empty="",
    )
