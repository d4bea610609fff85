"""The results of a benchmark, and their output: progress during the run, a table at the end, a JSON file."""

import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure, or the ratio of two, and the limit that it must keep."""

    name: str
    over: str | None = None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def title(self) -> str:
        return self.name if self.over is None else f"{self.name} / {self.over}"

    def value(self, figures: Mapping[str, float]) -> float | None:
        top = figures.get(self.name)
        bottom = 1.0 if self.over is None else figures.get(self.over)
        return None if top is None or not bottom else top / bottom

    def reached(self, figures: Mapping[str, float]) -> bool | None:
        value = self.value(figures)
        if value is None:
            return None
        return not (
            (self.at_least is not None and value < self.at_least)
            or (self.at_most is not None and value > self.at_most)
        )


WORTH_SAYING = 0.05


@dataclass(frozen=True, slots=True)
class Processors:
    """CPU seconds of all processors together since the machine started."""

    busy: float
    stolen: float
    """Seconds in which this virtual machine was ready to run, but its host had no free processor."""

    @classmethod
    def now(cls) -> "Processors":
        times = psutil.cpu_times()._asdict()
        stolen = times.get("steal", 0.0)
        return cls(sum(times.get(kind, 0.0) for kind in _WORK) + stolen, stolen)

    def stolen_until(self, later: "Processors") -> float:
        """Return the share of the requested CPU time that the host did not give."""
        busy = later.busy - self.busy
        return (later.stolen - self.stolen) / busy if busy > 0 else 0.0


_WORK = ("user", "nice", "system", "irq", "softirq")


@dataclass(slots=True)
class Result:
    name: str
    goals: tuple[Goal, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)
    unmeasured: list[str] = field(default_factory=list)
    """Figures that could not be measured because a requirement is missing; null in the file."""
    tools: dict[str, str] = field(default_factory=dict)
    """The programs used for measurements where there is a choice; in the file beside the machine."""
    begun: Processors = field(default_factory=Processors.now)

    @property
    def stolen(self) -> float:
        """Return the share of CPU time that other guests of the host took during the measurement."""
        return round(self.begun.stolen_until(Processors.now()), 2)

    def write(self, path: Path) -> None:
        figures = {**self.figures, **dict.fromkeys(self.unmeasured)}
        about = machine() | {"stolen": self.stolen} | self.tools
        document = {"name": self.name, "machine": about, "figures": figures}
        path.write_text(json.dumps(document, indent=2) + "\n")

    def show(self, console: Console) -> None:
        table = Table(title=f"bench {self.name}", title_justify="left")
        table.add_column("figure")
        table.add_column("value", justify="right")
        for name, value in self.figures.items():
            table.add_row(name, _number(value))
        for name in self.unmeasured:
            table.add_row(name, "-")
        table.caption = ", ".join(f"{tool}: {chosen}" for tool, chosen in self.tools.items()) or None
        console.print(table)
        goals = Table(title="against its limits, in this run", title_justify="left")
        for column in ("ratio or figure", "value", "wanted", ""):
            goals.add_column(column, justify="right" if column in ("value", "wanted") else "left")
        for goal in self.goals:
            ratio, reached = goal.value(self.figures), goal.reached(self.figures)
            if ratio is not None:
                wanted = f">= {goal.at_least:g}" if goal.at_least is not None else f"<= {goal.at_most:g}"
                goals.add_row(goal.title, f"{ratio:.2f}", wanted, "" if reached else "[red]missed")
        if self.goals:
            console.print(goals)
        if self.stolen > WORTH_SAYING:
            said = f"The host gave {self.stolen:.0%} of the processor time to others"
            console.print(f"{said}: ratios count, the rest is too low.")


def machine() -> dict[str, object]:
    """Describe the machine, so that readers can judge the figures."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 2**30, 1),
        "python": platform.python_version(),
    }


@contextmanager
def progress(console: Console, steps: int) -> Iterator[Progress]:
    """Show a progress bar of that many steps."""
    bar = Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    with bar:
        bar.add_task("starting", total=steps)
        yield bar


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3f}"
