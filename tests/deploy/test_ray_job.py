"""The manifest of a Ray job is one that KubeRay takes."""

from pathlib import Path

import pytest
import yaml
from jsonschema import ValidationError, validate

from tests.deploy.custom_resources import RAY_JOB

JOB = yaml.safe_load((Path(__file__).parents[2] / "deploy/ray-serve/job.yaml").read_text())
CLUSTER = JOB["spec"]["rayClusterSpec"]


def test_the_job_fits_the_definition_of_kuberay():
    validate(JOB, RAY_JOB)
    with pytest.raises(ValidationError):
        validate({**JOB, "spec": {**JOB["spec"], "unknown": 1}}, RAY_JOB)


@pytest.mark.filterwarnings("ignore")
def test_its_pods_are_pods():
    import kubernetes_validate

    groups = [CLUSTER["headGroupSpec"], *CLUSTER["workerGroupSpecs"]]
    for group in groups:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}, **group["template"]}
        kubernetes_validate.validate(pod, "1.33", strict=True)


def test_fits_run_on_the_workers_alone():
    assert CLUSTER["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert JOB["spec"]["entrypoint"].split()[:2] == ["forerun", "evaluate"]
    assert "--engine ray" in JOB["spec"]["entrypoint"]
