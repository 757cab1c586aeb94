"""Alerts and monitors of `deploy/kubernetes/monitoring.yaml`."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient
from jsonschema import ValidationError, validate
from prometheus_client.parser import text_string_to_metric_families

from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.models.baselines.roofline import Roofline
from forerun.models.router import Router
from forerun.service.http.app import create_app
from forerun.service.http.monitoring.gauges import _VALUES as LIVE
from forerun.service.schemas.prediction import EXAMPLE
from forerun.service.settings import Settings
from tests.deploy.custom_resources import SCHEMAS
from tests.deploy.test_kubernetes import FOLDER, found

DASHBOARD = FOLDER.parent / "grafana/forerun.json"
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool, of Debian's package prometheus"
)
SLOW = 'forerun_request_seconds_bucket{route="/v1/kubernetes/filter",le='
WAIT = 'forerun_work_wait_seconds_bucket{lane="questions",le='
STORED = ('forerun_store_records{store="graphs"}', 'forerun_store_records_limit{store="graphs"}')
SERIES: dict[str, list[tuple[str, str]]] = {
    "ForerunDown": [('up{job="forerun",pod="a"}', "0x30"), ('up{job="forerun",pod="b"}', "0x30")],
    "ForerunFaults": [('forerun_requests_total{route="/v1/predict",status="500"}', "0+3x30")],
    "ForerunRefuses": [('forerun_refused_total{limit="requests"}', "0+12x30")],
    "ForerunSlow": [
        *((f'{SLOW}"{le}"}}', f"0+{count}x30") for le, count in (("0.5", 90), ("1.0", 100))),
        (f'{SLOW}"+Inf"}}', "0+100x30"),
    ],
    "ForerunStoreFills": [(STORED[0], "95x30"), (STORED[1], "100x30")],
    "ForerunQueues": [
        *((f'{WAIT}"{le}"}}', f"0+{count}x30") for le, count in (("0.5", 80), ("1.0", 100))),
        (f'{WAIT}"+Inf"}}', "0+100x30"),
    ],
}
"""Alert -> series of one value a minute from which it fires."""
WELL: dict[str, list[tuple[str, str]]] = {
    "ForerunDown": [('up{job="forerun",pod="a"}', "0x30"), ('up{job="forerun",pod="b"}', "1x30")],
    "ForerunFaults": [('forerun_requests_total{route="/v1/predict",status="422"}', "0+3x30")],
    "ForerunRefuses": [('forerun_refused_total{limit="requests"}', "0+1x30")],
    "ForerunSlow": [(f'{SLOW}"0.5"}}', "0+100x30"), (f'{SLOW}"+Inf"}}', "0+100x30")],
    "ForerunStoreFills": [(STORED[0], "50x30"), (STORED[1], "100x30")],
    "ForerunQueues": [(f'{WAIT}"0.5"}}', "0+100x30"), (f'{WAIT}"+Inf"}}', "0+100x30")],
}
"""Alert -> series like these from which it does not."""
BY: dict[str, dict[str, str]] = {"ForerunStoreFills": {"store": "graphs"}}
"""Alert -> labels that it takes over from its series."""


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_resources_of_the_operator_fit_their_definitions(kind):
    content = found(kind)
    validate(content, SCHEMAS[kind])
    with pytest.raises(ValidationError):
        validate({**content, "spec": {**content["spec"], "unknown": 1}}, SCHEMAS[kind])


def test_every_alert_has_a_severity_and_series_that_try_it():
    rules = found("PrometheusRule")["spec"]["groups"][0]["rules"]
    assert {rule["alert"] for rule in rules} == set(SERIES) == set(WELL)
    assert {rule["labels"]["severity"] for rule in rules} <= {"critical", "warning"}


@needs_promtool
@pytest.mark.parametrize("alert", sorted(SERIES))
def test_an_alert_fires_when_it_should_and_only_then(tmp_path, alert):
    rules = found("PrometheusRule")["spec"]
    (own,) = (rule for rule in rules["groups"][0]["rules"] if rule["alert"] == alert)
    labels = own["labels"] | BY.get(alert, {})
    fires = {"exp_labels": labels, "exp_annotations": own["annotations"]}
    tried = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [series(alert, SERIES[alert], [fires]), series(alert, WELL[alert], [])],
    }
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tried))
    command = ["promtool", "test", "rules", "tests.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def series(alert: str, values: list[tuple[str, str]], fires: list[Any]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": own} for name, own in values],
        "alert_rule_test": [{"eval_time": "25m", "alertname": alert, "exp_alerts": fires}],
    }


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@pytest.mark.parametrize("folder", [FOLDER, FOLDER.parent / "overlays/host-network"])
def test_kustomize_puts_everything_into_one_namespace(folder: Path):
    made = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    objects = list(yaml.safe_load_all(made.stdout))
    assert {one["kind"] for one in objects} >= {"Deployment", "Service", "NetworkPolicy"}
    for one in objects:
        cluster_wide = one["kind"] in ("Namespace", "ClusterRole", "ClusterRoleBinding")
        assert one["metadata"].get("namespace") == (None if cluster_wide else "forerun")
    (policy,) = (one for one in objects if one["kind"] == "NetworkPolicy")
    addresses = [own for own in policy["spec"]["ingress"][0]["from"] if "ipBlock" in own]
    assert len(addresses) == (folder != FOLDER)


def metrics_in(expression: str) -> set[str]:
    """Names of our metrics and of processes in an expression of Prometheus."""
    return set(re.findall(r"\b(?:forerun|process)_[a-z_]+", expression))


def expressions() -> list[str]:
    """All expressions of the alerts and of the dashboard."""
    alerts = [rule["expr"] for rule in found("PrometheusRule")["spec"]["groups"][0]["rules"]]
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return alerts + [target["expr"] for panel in panels for target in panel["targets"]]


@pytest.fixture(scope="module")
def exposed(tmp_path_factory) -> set[str]:
    """Names of all samples of a service that has answered, refused and abandoned, and of drift."""
    app = create_app(
        Settings(home=tmp_path_factory.mktemp("home")),
        LoadedPredictor(Router((Roofline(),)), "test", "2026-01-01", "# card"),
    )
    with TestClient(app) as client:
        assert client.post("/v1/predict", json=EXAMPLE).status_code == 200
        telemetry = app.state.forerun.telemetry
        telemetry.refused.labels("requests").inc()
        telemetry.abandoned.labels("deadline").inc()
        text = client.get("/metrics").text
    families = text_string_to_metric_families(text)
    return {sample.name for family in families for sample in family.samples} | set(LIVE)


def test_alerts_and_the_dashboard_use_metrics_that_exist(exposed):
    named = {name for expression in expressions() for name in metrics_in(expression)}
    assert len(named) > 10
    assert named - exposed == set()


@needs_promtool
def test_all_expressions_are_valid(tmp_path):
    rules = [{"record": f"tried_{row}", "expr": one} for row, one in enumerate(expressions())]
    path = tmp_path / "rules.yaml"
    content = {"groups": [{"name": "tried", "rules": rules}]}
    path.write_text(yaml.safe_dump(content).replace("$__rate_interval", "5m"))
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
