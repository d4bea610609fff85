"""`evaluate`: the evaluation of the Telesto report from trace files, as a page and as JSON."""

import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from nuncius.pipeline.errors import InvalidOption
from nuncius.pipeline.evaluation import figures, traces
from nuncius.pipeline.evaluation.report import EvaluationSettings, Results, as_json, render
from nuncius.pipeline.evaluation.traces import CLIENTS, NODES, NoTraces, TraceStep
from nuncius.pipeline.jobs.frames import frame, kept
from nuncius.pipeline.jobs.job import Context, Job, Summary

WARMUP = COOLDOWN = 2.0
BUCKET = 1.0


def evaluate(
    clients: DataFrame | None, nodes: DataFrame | None, steps: list[TraceStep], settings: EvaluationSettings
) -> Results:
    """Compute the figures of runs. The frames have the columns of `traces.CLIENTS` and `traces.NODES`;
    response times come from clients' traces if there are any."""
    if clients is not None:
        requests = figures.as_clients_saw(clients)
    elif nodes is not None:
        requests = figures.as_nodes_saw(nodes)
    else:
        raise NoTraces("there is nothing to evaluate: no traces of clients, and none of nodes")
    size = settings.bucket
    measured = figures.windows(requests, warmup=settings.warmup, cooldown=settings.cooldown, bucket=size)
    with kept(measured) as windows, kept(figures.measured(requests, windows, bucket=size)) as counted:
        buckets = figures.buckets(counted, windows, bucket=size)
        runs = figures.summed_up(counted, buckets, bucket=size)
        by_method = figures.buckets(counted, windows, "method", bucket=size)
        methods = figures.summed_up(counted, by_method, "method", bucket=size)
        order = [step.name for step in steps]
        varied = frame(
            runs.sparkSession,
            "step string, parameter string, value double",
            ({"step": step.name, "parameter": step.parameter, "value": step.value} for step in steps),
        )
        rows = _rows(runs, order)
        if not rows:
            raise NoTraces(
                f"the runs are too short: nothing is left between {settings.warmup:g} s of warm-up and "
                f"{settings.cooldown:g} s of cool-down; set warmup and cooldown to less"
            )
        return Results(
            settings,
            runs=rows,
            buckets=_rows(buckets, order, "bucket"),
            histogram=_rows(figures.histogram(counted), order, "method", "low_ms"),
            methods=_rows(methods.where("method is not null"), order, "method"),
            shares=[] if nodes is None else _rows(figures.shares(nodes, windows, bucket=size), order),
            series=_rows(figures.series(runs, varied), order),
            left_out=[name for name in order if name not in {row["step"] for row in rows}],
        )


def _rows(made: DataFrame, order: list[str], *by: str) -> list[dict[str, Any]]:
    """Collect all rows: few for each run, except for one bucket a second."""
    places = {name: number for number, name in enumerate(order)}
    ordered = made.orderBy(*by) if by else made
    return sorted((row.asDict() for row in ordered.collect()), key=lambda row: places[row["step"]])


def run(context: Context) -> Summary:
    directory = Path(context.setting("traces"))
    steps = traces.steps_in(directory)
    clients = traces.read(context.spark, steps, "client", CLIENTS)
    nodes = traces.read(context.spark, steps, "node", NODES)
    settings = EvaluationSettings(
        traces=directory.name,
        warmup=_seconds(context, "warmup", WARMUP),
        cooldown=_seconds(context, "cooldown", COOLDOWN),
        bucket=_seconds(context, "bucket", BUCKET) or BUCKET,
        side="node" if clients is None else "client",
    )
    context.progress(f"evaluating {len(steps)} {'run' if len(steps) == 1 else 'runs'}")
    results = evaluate(clients, nodes, steps, settings)
    out = Path(context.setting("out", str(directory)))
    out.mkdir(parents=True, exist_ok=True)
    report, document = out / "evaluation.html", out / "evaluation.json"
    report.write_text(render(results), "utf-8")
    document.write_text(json.dumps(as_json(results), indent=1) + "\n")
    best = max(results.runs, key=lambda row: row["requests_s"])
    return Summary(
        rows_read=sum(row["requests"] for row in results.runs),
        rows_written=0,
        facts={
            "report": str(report),
            "json": str(document),
            "runs": len(results.runs),
            **{name: round(best[name], 3) for name in ("requests_s", "messages_s", "response_ms", "p99_ms")},
        },
    )


def _seconds(context: Context, name: str, default: float) -> float:
    text = context.setting(name, str(default))
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InvalidOption(f"'{name}' is a number of seconds, not {text!r}")
    return value


JOB = Job(
    "evaluate",
    "evaluates trace files: throughput, response times, phases, scalability",
    run,
    {
        "traces": "a directory of trace files, or of directories of them, one a run",
        "out": "where evaluation.html and evaluation.json go, if not beside the traces",
        "warmup": f"seconds to cut off at the start ({WARMUP:g}; the Telesto report: 30)",
        "cooldown": f"seconds to cut off at the end ({COOLDOWN:g}; the Telesto report: 10)",
        "bucket": f"seconds of a bucket ({BUCKET:g})",
    },
)
