"""Manifests of Kubernetes, KServe and Prometheus."""

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
from forerun.service.http.routes import ROUTERS
from forerun.service.schemas.prediction import EXAMPLE
from forerun.service.settings import Settings
from tests.deploy.custom_resources import INFERENCE_SERVICE, REPLICAS, SCHEDULER, SCHEMAS

# Manifests of `deploy/kubernetes` are valid and say what the service needs.


FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
OF_OTHERS = ("kustomize.config.k8s.io", "monitoring.coreos.com", "kubescheduler.config.k8s.io")
"""Groups of kinds that are no part of Kubernetes' own API."""
MANIFESTS = [
    content
    for path in sorted(FOLDER.glob("*.yaml"))
    for content in yaml.safe_load_all(path.read_text())
]
VERSIONS = ("1.30", "1.33", "1.37")


def found(kind: str) -> dict[str, Any]:
    (content,) = (one for one in MANIFESTS if one["kind"] == kind)
    return content


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.filterwarnings("ignore")
def test_manifests_fit_the_schemas_of_kubernetes(version):
    import kubernetes_validate

    own = [one for one in MANIFESTS if not one["apiVersion"].startswith(OF_OTHERS)]
    assert len(own) >= 8
    for content in own:
        kubernetes_validate.validate(content, version, strict=True)


def test_every_manifest_of_the_cluster_is_in_the_kustomization():
    listed = found("Kustomization")["resources"]
    apart = {"kustomization.yaml", "monitoring.yaml", "scheduler.yaml"}
    assert sorted(listed) == sorted({path.name for path in FOLDER.glob("*.yaml")} - apart)


PATHS = {route.path for router in ROUTERS for route in router.routes}


def containers():
    """Those of the Deployment and of KServe, with the security of their pods."""
    pod = found("Deployment")["spec"]["template"]["spec"]
    yield from ((own, pod["securityContext"]) for own in pod["containers"])
    yield from ((own, own["securityContext"]) for own in PREDICTOR["containers"])


def test_containers_run_without_root_on_a_read_only_file_system():
    for container, pod in containers():
        assert pod["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounted == {"/var/lib/forerun", "/tmp"}
    (container,) = found("Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_settings_probes_and_metrics_that_manifests_name_exist():
    fields = {f"FORERUN_{name.upper()}" for name in Settings.model_fields}
    for container, _ in containers():
        assert {entry["name"] for entry in container["env"]} <= fields
        probes = {place: own for place, own in container.items() if place.endswith("Probe")}
        assert {"readinessProbe", "livenessProbe"} <= set(probes)
        assert {probe["httpGet"]["path"] for probe in probes.values()} <= PATHS
    (endpoint,) = found("ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["path"] in PATHS


def test_probes_of_kserve_are_those_of_its_protocol():
    (container,) = PREDICTOR["containers"]
    assert container["name"] == "kserve-container"
    paths = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("readiness", "liveness")}
    assert paths == {"/v2/health/ready", "/v2/health/live"}


def test_the_scheduler_asks_paths_that_exist_and_places_pods_without_an_answer():
    configuration = found("KubeSchedulerConfiguration")
    validate(configuration, SCHEDULER)
    (extender,) = configuration["extenders"]
    prefix = extender["urlPrefix"].partition(":8080")[2]
    assert {f"{prefix}/{extender[verb]}" for verb in ("filterVerb", "prioritizeVerb")} <= PATHS
    assert extender["ignorable"] is True
    assert extender["nodeCacheCapable"] is True


def test_the_account_may_read_what_is_followed_and_nothing_else():
    (rule,) = found("ClusterRole")["rules"]
    assert rule == {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}


def test_requests_without_a_key_are_answered_only_behind_a_network_policy():
    (container,) = found("Deployment")["spec"]["template"]["spec"]["containers"]
    settings = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert settings["FORERUN_AUTH"] == "off"
    policy = found("NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert all(rule["from"] for rule in policy["ingress"])


def test_the_container_asks_for_keys_unless_a_setting_says_otherwise():
    text = (FOLDER.parents[1] / "Containerfile").read_text()
    assert "FORERUN_HOST=0.0.0.0" in text
    assert "FORERUN_AUTH=required" in text


WEBHOOK = FOLDER.parent / "overlays/webhook"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.filterwarnings("ignore")
def test_the_webhook_asks_a_path_that_exists_and_pods_are_admitted_without_an_answer(version):
    import kubernetes_validate

    (content,) = (
        one
        for one in yaml.safe_load_all((WEBHOOK / "webhook.yaml").read_text())
        if one["kind"] == "ValidatingWebhookConfiguration"
    )
    kubernetes_validate.validate(content, version, strict=True)
    (webhook,) = content["webhooks"]
    service = webhook["clientConfig"]["service"]
    assert service["path"] in PATHS
    assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Ignore", "None")
    (excluded,) = webhook["namespaceSelector"]["matchExpressions"]
    assert "forerun" in excluded["values"], "forerun's own pods never wait for it"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_the_service_of_the_webhook_leads_to_the_proxy_that_ends_tls():
    done = subprocess.run(["kubectl", "kustomize", WEBHOOK], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kinds = {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}
    service = kinds["ValidatingWebhookConfiguration"]["webhooks"][0]["clientConfig"]["service"]
    (port,) = (p for p in kinds["Service"]["spec"]["ports"] if p["port"] == service["port"])
    pod = kinds["Deployment"]["spec"]["template"]["spec"]
    (proxy,) = (own for own in pod["containers"] if own["name"] == "tls")
    assert proxy["ports"] == [{"name": port["targetPort"], "containerPort": port["port"]}]
    assert f"--listen=0.0.0.0:{port['port']}" in proxy["args"]
    secrets = {own["secret"]["secretName"] for own in pod["volumes"] if "secret" in own}
    certificate = kinds["Certificate"]
    assert secrets == {certificate["spec"]["secretName"]}
    assert certificate["spec"]["dnsNames"] == [f"{service['name']}.{service['namespace']}.svc"]
    own = kinds["ValidatingWebhookConfiguration"]["metadata"]["annotations"]
    assert own["cert-manager.io/inject-ca-from"] == f"forerun/{certificate['metadata']['name']}"
    ports = [p["port"] for p in kinds["NetworkPolicy"]["spec"]["ingress"][0]["ports"]]
    assert port["targetPort"] in ports


# The manifest of `deploy/kserve`: its pod is valid, and its probes are paths of the service.


MANIFEST = yaml.safe_load(
    (Path(__file__).parents[2] / "deploy/kserve/inferenceservice.yaml").read_text()
)
PREDICTOR = MANIFEST["spec"]["predictor"]


def test_it_fits_the_definition_of_kserve():
    validate(MANIFEST, INFERENCE_SERVICE)
    assert PREDICTOR["minReplicas"] <= PREDICTOR["maxReplicas"]


@pytest.mark.filterwarnings("ignore")
def test_what_kserve_passes_on_is_a_pod():
    import kubernetes_validate

    spec = {name: value for name, value in PREDICTOR.items() if name not in REPLICAS}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "forerun"}, "spec": spec}
    kubernetes_validate.validate(pod, "1.33", strict=True)


# Alerts and monitors of `deploy/kubernetes/monitoring.yaml`.


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
