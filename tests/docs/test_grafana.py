"""The dashboard fits the metrics."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from docs.examples import ROOT
from doors.http.peer import running_node

DASHBOARD = ROOT / "docs" / "grafana.json"
PAGE = ROOT / "docs" / "monitoring.md"
NAME = re.compile(r"\b(?:nuncius|process)_\w+")
TOGETHER = re.compile(r"(sum|max) by \([^)]*\) \((rate\()?$")
GROUPS = re.compile(r"by \(([^)]*)\)|\{\{(\w+)\}\}")


@pytest.fixture
async def families(dsn: str, tmp_path: Path) -> dict[str, set[str]]:
    """Every sample that a node with some of everything shows, workers too, and its labels."""
    async with running_node(dsn) as node:
        await node.broker.siblings.open(tmp_path, 1, 2)
        await node.post("/v1/queues", {"name": "q"})
        await node.post("/v1/queues/q/messages", {"body": "x"})
        await node.post("/v1/topics/t/subscriptions", {"name": "s"})
        await node.post("/v1/topics/t/messages", {"body": "x"})
        text = (await node.get("/metrics")).content.decode()
        node.broker.siblings.close()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions(dashboard: dict[str, Any]) -> list[tuple[str, str]]:
    found = [
        (target["expr"], target["legendFormat"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]
    return [*found, *((each["query"], "") for each in dashboard["templating"]["list"])]


def test_every_metric_of_the_dashboard_exists(families: dict[str, set[str]]) -> None:
    """No panel asks for a metric, or for a label, that no node has."""
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    asked = [(expression, legend) for expression, legend in expressions(dashboard) if NAME.search(expression)]
    assert len(asked) > 20
    for expression, legend in asked:
        names = NAME.findall(expression)
        assert set(names) <= set(families), expression
        labels = {"instance"}.union(*(families[name] for name in names))  # Prometheus adds that one itself
        for group, shown in GROUPS.findall(f"{expression} {legend}"):
            wanted = {word.strip() for word in group.split(",")} if group else {shown}
            assert wanted <= labels, expression


def test_panels_show_nodes_whole(families: dict[str, set[str]]) -> None:
    """What each worker of a node counts is put together, so that a panel has no line for each of them."""
    seen = 0
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name in NAME.finditer(expression):
                if "worker" in families[name.group()]:
                    assert TOGETHER.search(expression[: name.start()]), expression
                    seen += 1
            assert "worker" not in target["legendFormat"]
    assert seen > 10


def test_the_page_names_metrics_that_exist(families: dict[str, set[str]]) -> None:
    """What the page on monitoring calls by name is there, and nothing that is there is left out."""
    text = PAGE.read_text("utf-8")
    plain = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name in families}
    named = set(NAME.findall(text))
    assert named - plain - set(families) == set()
    assert plain - named - set(families).difference(plain) == set()


def test_rates_are_of_counters() -> None:
    """What can go down has no rate: its fall would be taken for a counter that began anew."""
    found = [
        name
        for path in (DASHBOARD, PAGE)
        for name in re.findall(r"(?:rate|increase)\((\w+)", path.read_text("utf-8"))
    ]
    assert len(found) > 10
    assert all(name.endswith(("_total", "_bucket")) for name in found)


def test_panels_do_not_overlap() -> None:
    """Each panel has a place of its own."""
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not taken & cells, panel["title"]
        taken |= cells
