"""A metric that is asked alone is answered as it is among all of them."""

import pytest
from fastapi.testclient import TestClient

from forerun.data.named.networks import network_named
from forerun.service.http.app import create_app
from forerun.service.schemas.prediction import EXAMPLE_NETWORK
from forerun.service.settings import Settings


@pytest.fixture(scope="module")
def metrics_of(tmp_path_factory):
    """Asks the bundled predictors; metric -> estimate."""
    with TestClient(create_app(Settings(home=tmp_path_factory.mktemp("home")))) as client:

        def ask(device, metrics, **changes):
            asked = EXAMPLE_NETWORK | {"device": device, "metrics": metrics}
            return client.post("/v1/predict", json=asked | changes).json()["metrics"]

        yield ask


@pytest.mark.parametrize("device", ["l4", "rtx-4090", "epyc-7763"])
@pytest.mark.parametrize("metric", ["latency_ms", "peak_memory_mib", "power_w", "energy_j"])
def test_the_estimate_of_a_metric_asked_alone_is_that_among_all(metrics_of, device, metric):
    every, alone = metrics_of(device, None), metrics_of(device, [metric])
    assert list(alone) == [metric]
    for name in ("value", "low", "high", "coverage"):
        one, other = ((found[metric] or {}).get(name) for found in (alone, every))
        assert one == (None if other is None else pytest.approx(other, rel=1e-9))


@pytest.mark.parametrize("metric", ["latency_ms", "power_w", "energy_j"])
@pytest.mark.parametrize("phase", ["inference", "training"])
def test_a_run_that_does_not_fit_has_one_grade(metrics_of, metric, phase):
    workload = {"kind": "network", "graph": network_named("gpt2").to_json(), "batch_size": 4096}
    run = {"workload": workload | {"phase": phase}}
    every, alone = metrics_of("l4", None, **run), metrics_of("l4", [metric], **run)
    assert "it cannot run as asked" in every[metric]["grade_reason"]
    for said in ("grade", "grade_reason"):
        assert alone[metric][said] == every[metric][said]
