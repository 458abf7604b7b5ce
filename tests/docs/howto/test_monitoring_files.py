"""The Grafana dashboard and the alerts use only metrics that ``/metrics`` exports."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.adapters.real_nats import NatsServer
from tests.docs.pages import ROOT
from tests.gateway.stand import Stand, settings_for, submit, until

DEPLOY = ROOT / "deploy"
ADDED_BY_PROMETHEUS = frozenset({"up", "job", "instance"})
FUNCTIONS = frozenset(["and", "by", "delta", "histogram_quantile", "label_values", "max", "on", "rate", "sum"])
Labels = dict[str, set[str]]
"""The labels of a metric, and the values they have."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Labels]:
    """What a gateway exports once there was a run."""
    with (
        NatsServer(tmp_path_factory.mktemp("nats")) as nats,
        Stand(settings_for(nats.url, tmp_path_factory.mktemp("data"))) as stand,
        stand.client() as client,
    ):
        run_id = submit(client)
        until(client, run_id, lambda _: "pyoco_run_latency_seconds_count 1" in client.get("/metrics").text)
        return _samples(client)


def _samples(client: httpx.Client) -> dict[str, Labels]:
    found: dict[str, Labels] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                labels.setdefault(name, set()).add(value)
    return found


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / "pyoco-server.json").read_text(encoding="utf-8"))
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[str]:
    """Everything that Prometheus is asked."""
    for rule in rules():
        yield rule["expr"]
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def test_every_metric_and_label_is_exported(exported: dict[str, Labels]) -> None:
    named: set[str] = set()
    for expression in expressions():
        there = {label for metric in re.findall(r"pyoco_\w+", expression) for label in exported.get(metric, {})}
        assert set(re.findall(r"by \((\w+)\)", expression)) <= there, expression
        for metric, chosen in re.findall(r"\b(pyoco_\w+|up)\b(?:\{([^}]*)\})?", expression):
            named.add(metric)
            labels = exported.get(metric, {})
            assert metric in ADDED_BY_PROMETHEUS or metric in exported, f"{metric}: {expression}"
            for label, value in re.findall(r'(\w+)="([^"]*)"', chosen):
                assert label in ADDED_BY_PROMETHEUS or value in labels.get(label, ()), f"{label}={value}: {expression}"
    assert named >= {name for name in exported if not name.endswith(("_sum", "_count"))}, (
        "a metric is missing in dashboard and alerts"
    )


def test_the_check_reads_the_expressions_whole() -> None:
    """What is left of an expression without metrics and labels are functions and numbers we know."""
    for expression in expressions():
        rest = re.sub(r"pyoco_\w+|\{[^}]*\}|\[[^\]]*\]|by \(\w+\)", " ", expression)
        words = set(re.findall(r"[a-z_]\w*", rest))
        assert words <= FUNCTIONS | ADDED_BY_PROMETHEUS, expression
        assert expression.count("(") == expression.count(")"), expression


def test_the_dashboard_is_one_that_grafana_can_import() -> None:
    found = dashboard()
    panels = found["panels"]
    assert found["uid"] == "pyoco-server"
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {variable["name"] for variable in found["templating"]["list"]} == {"datasource", "job"}
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"]
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert max(x for x, _ in cells) < 24
        assert cells.isdisjoint(taken)
        taken |= cells


def test_every_alert_says_what_is_wrong() -> None:
    assert len(rules()) == 7
    for rule in rules():
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"]
    page = (ROOT / "docs" / "howto" / "monitoring.md").read_text(encoding="utf-8")
    woken = sum(rule["labels"]["severity"] == "page" for rule in rules())
    assert f"seven alerts: {['', 'one', 'two', 'three'][woken]} urgent ones" in page


def test_prometheus_configuration_names_existing_rules_and_the_key() -> None:
    file = DEPLOY / "prometheus" / "prometheus.yml"
    found = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert all((file.parent / name).is_file() for name in found["rule_files"])
    [job] = found["scrape_configs"]
    assert (job["job_name"], job["metrics_path"]) == ("pyoco-server", "/metrics")
    assert [Path(name).name for name in job["http_headers"]["X-API-Key"]["files"]] == ["pyoco-api-key"]
