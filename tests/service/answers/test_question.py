"""Questions: whatever can change an answer is part of the key, and nothing else."""

from dataclasses import fields, replace

import pytest
from fastapi.testclient import TestClient

from forerun.data.device import DeviceCatalog
from forerun.data.named.networks import network_named
from forerun.data.query import Operation, Query
from forerun.data.software import Software
from forerun.data.workload import InferenceSetup, Kernel, Network, TrainingSetup
from forerun.service.answers.question import question_about
from forerun.service.http.app import create_app
from forerun.service.schemas.prediction import EXAMPLE_NETWORK
from forerun.service.settings import Settings
from tests.every import for_every
from tests.service.conftest import GRAPH

L4, T4 = (DeviceCatalog.load().get(name) for name in ("l4", "t4"))
NETWORK = Network(GRAPH, 8, "fp32", "training", TrainingSetup())
KERNEL = Kernel(GRAPH.operators[0])
OTHER = {
    TrainingSetup: {
        "optimizer": "sgd",
        "checkpoint_segments": 2,
        "accumulation": 2,
        "lora_rank": 4,
        "data_parallel": 2,
        "tensor_parallel": 2,
        "pipeline_parallel": 2,
        "zero_stage": 1,
        "attention": "eager",
        "dropout": 0.1,
        "checkpoint_blocks": True,
        "optimizer_kernel": "fused",
        "lora_targets": "attention",
        "frozen_weights": "nf4",
        "adapter_precision": "fp32",
        "frozen_inputs": True,
        "loss_chunks": 8,
        "legacy_pytorch": True,
        "sequence_parallel": True,
    },
    Operation: {"device_count": 2, "power_limit_w": 60.0},
    Network: {
        "graph": replace(GRAPH, operators=GRAPH.operators[:1]),
        "batch_size": 9,
        "precision": "fp16",
        "phase": "inference",
        "training": None,
        "inference": InferenceSetup(cache_tokens=64),
    },
    Kernel: {"operator": GRAPH.operators[1], "precision": "fp16"},
    Query: {
        "workload": KERNEL,
        "device": T4,
        "software": Software(runtime="compiled"),
        "operation": Operation(1, 70.0),
        "level": 95.0,
    },
}
CASES = [(kind, name) for kind in OTHER for name in (f.name for f in fields(kind))]


@for_every("kind, name", [case for case in CASES if case[1] != "kind"])
def test_every_field_of_a_question_is_in_its_key(kind, name):
    query = Query(KERNEL if kind is Kernel else NETWORK, L4)
    change = {name: OTHER[kind][name]}
    if kind is Query:
        other = replace(query, **change)
    elif kind is Operation:
        other = replace(query, operation=replace(query.operation, **change))
    elif kind is TrainingSetup:
        training = replace(query.workload.training, **change)
        other = replace(query, workload=replace(query.workload, training=training))
    else:
        other = replace(query, workload=replace(query.workload, **change))
    assert question_about(query).key != question_about(other).key


def test_equal_questions_have_equal_keys():
    assert question_about(Query(NETWORK, L4)).key == question_about(Query(NETWORK, L4)).key
    assert (
        question_about(Query(NETWORK, L4), ("power_w",)).key
        != question_about(Query(NETWORK, L4)).key
    )


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
