"""The dashboard and the alert rules use only existing metrics, and every metric is documented."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from timewright.telemetry.metrics import ALL_METRICS

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "timewright.json"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
PAGE = ROOT / "docs" / "operate" / "observe.md"

NAME = re.compile(r"\btimewright_[a-z_]+")
LABELS = re.compile(r"(timewright_[a-z_]+)\{([^}]*)\}")
GROUPED = re.compile(r"by \(([^)]*)\)")
FROM_THE_SCRAPER = {"instance", "le"}


def exposed() -> dict[str, tuple[str, ...]]:
    """Every sample name with its labels."""
    found: dict[str, tuple[str, ...]] = {}
    for metric in ALL_METRICS.values():
        found[metric.exposed_name] = metric.labels
        if metric.kind == "histogram":
            for part in ("_bucket", "_sum", "_count"):
                found[metric.exposed_name + part] = (*metric.labels, "le")
    return found


def expressions() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    variables = [one["query"]["query"] for one in dashboard["templating"]["list"]]
    rules = [rule["expr"] for group in alerts()["groups"] for rule in group["rules"]]
    return [*queries, *variables, *rules]


def alerts() -> Any:
    return yaml.safe_load(ALERTS.read_text("utf-8"))


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_speaks_of_metrics_and_labels_that_exist(expression: str) -> None:
    names = NAME.findall(expression)
    assert names
    assert set(names) <= set(exposed()), expression
    for name, inside in LABELS.findall(expression):
        used = set(re.findall(r"(\w+)=~?\"", inside))
        assert used <= set(exposed()[name]), expression
    for group in GROUPED.findall(expression):
        known = {label for name in names for label in exposed()[name]} | FROM_THE_SCRAPER
        assert {label.strip() for label in group.split(",")} <= known, expression
    assert expression.count("(") == expression.count(")")


def test_the_dashboard_can_be_imported_again_and_again() -> None:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    assert dashboard["uid"] == "timewright"
    assert dashboard["schemaVersion"] >= 36
    assert [one["name"] for one in dashboard["__inputs"]] == ["DS_PROMETHEUS"]
    assert {one["name"] for one in dashboard["templating"]["list"]} == {"namespace", "queue"}
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(numbers) == len(set(numbers))
    sources = {panel["datasource"]["uid"] for panel in dashboard["panels"]}
    assert sources == {"${DS_PROMETHEUS}"}


def test_panels_lie_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_every_alert_has_a_summary_and_a_remedy() -> None:
    rules = [rule for group in alerts()["groups"] for rule in group["rules"]]
    assert {rule["alert"] for rule in rules} >= {
        "TimewrightDead",
        "TimewrightOldestReady",
        "TimewrightRunsParked",
        "TimewrightQueueLimitReached",
        "TimewrightClockStepped",
    }
    for rule in rules:
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]


def test_every_metric_is_documented_with_its_labels() -> None:
    page = PAGE.read_text("utf-8")
    for metric in ALL_METRICS.values():
        line = next((one for one in page.splitlines() if f"`{metric.exposed_name}`" in one), "")
        assert line.startswith("|"), f"{metric.exposed_name} is not in docs/operate/observe.md"
        assert all(f"`{label}`" in line for label in metric.labels), metric.exposed_name
    unknown = set(NAME.findall(page)) - set(exposed())
    assert not unknown
