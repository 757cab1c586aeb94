"""The manifest of `deploy/kserve`: its pod is valid, and its probes are paths of the service."""

from pathlib import Path

import pytest
import yaml
from jsonschema import validate

from forerun.service.http.routes import ROUTERS
from forerun.service.settings import Settings
from tests.deploy.custom_resources import INFERENCE_SERVICE, REPLICAS

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


def test_probes_are_paths_of_the_protocol_and_variables_are_settings():
    (container,) = PREDICTOR["containers"]
    assert container["name"] == "kserve-container"
    paths = {route.path for router in ROUTERS for route in router.routes}
    probes = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("readiness", "liveness")}
    assert probes == {"/v2/health/ready", "/v2/health/live"}
    assert probes <= paths
    names = {f"FORERUN_{name.upper()}" for name in Settings.model_fields}
    assert {one["name"] for one in container["env"]} <= names


def test_it_runs_without_root_and_writes_to_its_volumes_alone():
    (container,) = PREDICTOR["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["runAsNonRoot"] is True
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted == {"/var/lib/forerun", "/tmp"}
