"""Manifests of `deploy/kubernetes` are valid and say what the service needs."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import validate

from forerun.service.http.routes import ROUTERS
from forerun.service.settings import Settings
from tests.deploy.custom_resources import SCHEDULER

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


def test_the_container_runs_without_root_on_a_read_only_file_system():
    template = found("Deployment")["spec"]["template"]["spec"]
    (container,) = template["containers"]
    assert template["securityContext"]["runAsNonRoot"] is True
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted == {"/var/lib/forerun", "/tmp"}


def test_settings_probes_and_metrics_that_manifests_name_exist():
    (container,) = found("Deployment")["spec"]["template"]["spec"]["containers"]
    fields = {f"FORERUN_{name.upper()}" for name in Settings.model_fields}
    assert {entry["name"] for entry in container["env"]} <= fields
    paths = {route.path for router in ROUTERS for route in router.routes}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in paths
    (endpoint,) = found("ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["path"] in paths


def test_the_scheduler_asks_paths_that_exist_and_places_pods_without_an_answer():
    configuration = found("KubeSchedulerConfiguration")
    validate(configuration, SCHEDULER)
    (extender,) = configuration["extenders"]
    prefix = extender["urlPrefix"].partition(":8080")[2]
    paths = {route.path for router in ROUTERS for route in router.routes}
    assert {f"{prefix}/{extender[verb]}" for verb in ("filterVerb", "prioritizeVerb")} <= paths
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
    assert service["path"] in {route.path for router in ROUTERS for route in router.routes}
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
