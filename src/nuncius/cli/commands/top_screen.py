"""The screen of `nuncius top`. Names come from clients: they are shown as text, never as markup."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nuncius.broker.observe.counters_model import ASK_FOR_ROWS
from nuncius.cli import output

KINDS = ("published", "put", "taken", "delivered", "acked", "read")
MOST_PROCEDURES = 8
LEVELS = {"fail": "bold red", "warn": "yellow"}


def screen(seen: dict[str, Any], url: str) -> RenderableType:
    stats, overview = seen["stats"], seen["overview"]
    tables = (
        _doors(stats),
        _workers(stats),
        _procedures(stats),
        _queues(stats, overview),
        _subscriptions(overview),
    )
    return Group(
        _head(stats, overview["figures"], url),
        *_alarms(overview["alarms"]),  # before the tables: a small terminal shows only the top
        *(line for table in tables if table.row_count for line in ("", table)),
    )


def lost(reason: str) -> RenderableType:
    return Text(f"{output.printable(reason)}\nAsking again; q ends.", style="bold red")


def _head(stats: dict[str, Any], figures: dict[str, Any], url: str) -> Text:
    up = output.since(datetime.fromisoformat(stats["started_at"]))
    pids = [each["pid"] for each in stats["processes"]]
    who = f"{len(pids)} processes" if len(pids) > 1 else f"process {pids[0]}"
    silent = "".join(f", worker {number} does not answer" for number in stats["missing"])
    return Text(
        f"Nuncius {stats['version']} at {output.printable(url)}, {who}, up {up}{silent}\n"
        f"queues {figures['queues']:,} ({figures['messages']:,} messages)   "
        f"topics {figures['topics']:,} ({figures['entries']:,} entries)   "
        f"subscriptions {figures['subscriptions']:,}   clients {figures['clients']:,}   "
        f"nodes {figures['nodes_alive']:,} of {figures['nodes']:,}   store {output.size(figures['bytes'])}"
    )


def _doors(stats: dict[str, Any]) -> Table:
    table = _table("messages a second", "open", *KINDS)
    rows = {name: (door["connections"], door["messages"]) for name, door in stats["doors"].items()}
    together = sum(count for count, _ in rows.values())
    for name, (connections, messages) in {**rows, "together": (together, stats["messages"])}.items():
        table.add_row(Text(name), f"{connections:,}", *_rates(messages))
    return table


def _workers(stats: dict[str, Any]) -> Table:
    """Tabulate connections and rates by worker, if there are several."""
    table = _table("of these", "open", *KINDS)
    processes = stats["processes"]
    for each in processes if len(processes) > 1 else ():
        name = f"worker {each['worker']}, {each['pid']}"
        table.add_row(Text(name), f"{each['connections']:,}", *_rates(each["messages"]))
    return table


def _procedures(stats: dict[str, Any]) -> Table:
    table = _table("in the store, ms", "batches", "rows a batch", "half in", "95 % in", "99 % in")
    slowest = sorted(stats["procedures"], key=lambda each: -(each["p95_ms"] or 0.0))
    for each in slowest[:MOST_PROCEDURES]:
        times = [_milliseconds(each[name]) for name in ("p50_ms", "p95_ms", "p99_ms")]
        rows = "-" if each["name"] in ASK_FOR_ROWS else f"{each['rows'] / each['batches']:.1f}"
        table.add_row(Text(each["name"]), f"{each['batches']:,}", rows, *times)
    return table


def _queues(stats: dict[str, Any], overview: dict[str, Any]) -> Table:
    table = _table("queue", "messages", "oldest", "put/s", "taken/s")
    rates = {each["name"]: each for each in stats["queues"]}
    for each in overview["queues"]:
        rate = rates.pop(each["queue"], {"put": 0.0, "taken": 0.0})
        table.add_row(
            Text(output.printable(each["queue"])),
            f"{each['messages']:,}",
            output.since(_time(each["oldest"])),
            _rate(rate["put"]),
            _rate(rate["taken"]),
        )
    for name, rate in list(rates.items())[:5]:
        table.add_row(Text(output.printable(name)), "0", "-", _rate(rate["put"]), _rate(rate["taken"]))
    return table


def _subscriptions(overview: dict[str, Any]) -> Table:
    table = _table("subscription", "lag", "failures", "last confirmed")
    for each in overview["subscriptions"]:
        if each["lag"] or each["failures"]:
            table.add_row(
                Text(output.printable(f"{each['topic']} · {each['subscriber']}")),
                f"{each['lag']:,}",
                f"{each['failures']:,}",
                output.since(_time(each["confirmed_at"])),
            )
    return table


def _alarms(alarms: Sequence[dict[str, str]]) -> list[Text]:
    if not alarms:
        return [Text("All is well.", style="green")]
    return [
        Text(output.printable(f"{each['text']} {each['remedy']}"), style=LEVELS.get(each["level"], ""))
        for each in alarms
    ]


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", show_edge=False, pad_edge=False)
    table.add_column(Text(first), overflow="fold", min_width=18)
    for name in others:
        table.add_column(Text(name), justify="right")
    return table


def _rates(messages: dict[str, Any]) -> list[str]:
    return [_rate(messages[kind]["rate"]) if kind in messages else "-" for kind in KINDS]


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
