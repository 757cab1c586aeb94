"""Alerts and monitors of `deploy/kubernetes/monitoring.yaml`."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import ValidationError, validate

from tests.deploy.custom_resources import SCHEMAS
from tests.deploy.test_kubernetes import FOLDER, found

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool, of Debian's package prometheus"
)
SLOW = 'forerun_request_seconds_bucket{route="/v1/kubernetes/filter",le='
SERIES: dict[str, list[tuple[str, str]]] = {
    "ForerunDown": [('up{job="forerun",pod="a"}', "0x30"), ('up{job="forerun",pod="b"}', "0x30")],
    "ForerunFaults": [('forerun_requests_total{route="/v1/predict",status="500"}', "0+3x30")],
    "ForerunRefuses": [('forerun_refused_total{limit="requests"}', "0+12x30")],
    "ForerunSlow": [
        *((f'{SLOW}"{le}"}}', f"0+{count}x30") for le, count in (("0.5", 90), ("1.0", 100))),
        (f'{SLOW}"+Inf"}}', "0+100x30"),
    ],
}
"""Alert -> series of one value a minute from which it fires."""
WELL: dict[str, list[tuple[str, str]]] = {
    "ForerunDown": [('up{job="forerun",pod="a"}', "0x30"), ('up{job="forerun",pod="b"}', "1x30")],
    "ForerunFaults": [('forerun_requests_total{route="/v1/predict",status="422"}', "0+3x30")],
    "ForerunRefuses": [('forerun_refused_total{limit="requests"}', "0+1x30")],
    "ForerunSlow": [(f'{SLOW}"0.5"}}', "0+100x30"), (f'{SLOW}"+Inf"}}', "0+100x30")],
}
"""Alert -> series like these from which it does not."""


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
    fires = {"exp_labels": own["labels"], "exp_annotations": own["annotations"]}
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
