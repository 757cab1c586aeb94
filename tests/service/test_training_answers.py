"""Memory of training over HTTP: its upper end, its parts, what fits, and what is not known."""

import numpy as np
import pytest

from forerun.models.baselines.roofline import Roofline
from forerun.models.conformal import LogQuantiles
from forerun.models.memory.calibrated import CalibratedMemory, PublishedRanges, SeenKind
from forerun.models.memory.fitted_peaks import MemoryDomain
from forerun.models.memory.peak_memory import Memory
from tests.service.answered import content_of, problem_of
from tests.service.conftest import GRAPH, client_of, loaded_of

PEAK = "peak_memory_mib"


@pytest.fixture
def client(settings):
    with client_of(settings, loaded_of(Roofline(), Memory())) as client:
        yield client


def ask(client, device="l4", operation=None, **workload):
    network = {"kind": "network", "graph": GRAPH.to_json(), "batch_size": 64, "phase": "training"}
    body = {"workload": network | workload, "device": device, "operation": operation or {}}
    return content_of(client.post("/v1/predict", json=body))


def test_parts_add_up_to_the_peak_and_the_upper_end_says_whether_it_fits(client):
    body = ask(client, training={"optimizer": "adamw"})
    peak = body["metrics"][PEAK]
    assert sum(body["breakdown_mib"].values()) == pytest.approx(peak["value"])
    assert {"weights", "optimizer", "activations", "context"} <= set(body["breakdown_mib"])
    assert peak["value"] < peak["high"] == body["fits"]["needed_mib"]
    assert body["fits"]["fits"] is True
    assert peak["p95"] is None, "this predictor was calibrated on no training peaks"


def test_each_training_set_up_has_a_different_peak(client):
    set_ups = [{"optimizer": "sgd"}, {"optimizer": "adamw"}, {"optimizer": "momentum"}]
    set_ups += [{"data_parallel": 8, "zero_stage": stage} for stage in (1, 2, 3)]
    peaks = [ask(client, training=way)["metrics"][PEAK]["value"] for way in set_ups]
    sgd, adamw, momentum, *zero = peaks
    assert sgd < momentum < adamw
    assert adamw > zero[0]
    # All of this network is one layer, whose gradients and weights are gathered whole.
    assert adamw > zero[1] >= zero[0]
    assert zero[2] > zero[1]


def test_a_model_as_the_body_takes_the_same_options(client):
    import json

    query = {"device": "l4", "batch_size": 64, "phase": "training"}
    options = {"optimizer": "adam8bit", "data_parallel": 4, "zero_stage": 2}
    content = json.dumps(GRAPH.to_json())
    answer = content_of(client.post("/v1/predict/model", params=query | options, content=content))
    assert answer["metrics"] == ask(client, training=options)["metrics"]


def test_a_batch_takes_the_same_options(client):
    network = {"kind": "network", "graph": GRAPH.to_json(), "batch_size": 64}
    set_ups = [{"phase": "training", "training": {"lora_rank": 8}}, {"training": {"lora_rank": 8}}]
    items = [{"workload": network | way, "device": "l4"} for way in set_ups]
    first, second = client.post("/v1/predict:batch", json={"items": items}).json()["items"]
    assert first["metrics"][PEAK]["value"] > 0
    assert second["type"] == "/problems/bad-training-setup"
    assert "ask for the phase training" in second["detail"]


def test_what_several_devices_take_together_is_null_with_a_reason(client):
    split = ask(client, training={"tensor_parallel": 2})
    assert split["metrics"]["latency_ms"] is None
    assert "divided among 2 devices" in split["missing"]["latency_ms"]
    assert split["breakdown_ms"] == {}
    assert split["metrics"][PEAK]["value"] < ask(client)["metrics"][PEAK]["value"]


def test_a_data_parallel_time_says_how_messages_are_counted(client):
    many = ask(client, training={"data_parallel": 8})
    assert not many["metrics"]["latency_ms"]["in_domain"]
    assert any(
        "communication among 8 devices is computed by formula" in line for line in many["limits"]
    )
    assert "total power" in many["missing"]["power_w"]


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"checkpoint_segments": 2}, "with recomputation was measured"),
        ({"accumulation": 4}, "4 micro-batches"),
        ({"lora_rank": 8}, "with adapters was measured"),
    ],
)
def test_what_times_leave_out_is_said(client, training, said):
    body = ask(client, training=training)
    assert any(said in line for line in body["limits"])
    assert not body["metrics"]["latency_ms"]["in_domain"]


def test_memory_is_answered_where_no_time_is(client):
    """A sheet without figures to reckon time with, and one without the precision asked for."""
    bare = {"name": "box", "vendor": "me", "kind": "gpu", "memory_gib": 4}
    half = bare | {"memory_bandwidth_gbs": 300, "peak_tflops": {"fp16": 9}}
    for sheet, said in ((bare, "no spec sheet"), (half, "no arithmetic peak for fp32")):
        body = ask(client, device=sheet)
        assert body["metrics"]["latency_ms"] is None
        assert said in body["missing"]["latency_ms"]
        assert body["metrics"][PEAK]["value"] > 0
        assert body["roofline"] == {}
        assert body["fits"]["fits"] is True


def test_time_is_answered_where_no_memory_is(client):
    body = ask(client, device="epyc-7742")
    assert body["metrics"]["latency_ms"]["value"] > 0
    assert body["metrics"][PEAK] is None
    assert body["fits"] is None
    assert body["breakdown_mib"] == {}


def test_nothing_is_answered_where_neither_is_known(client):
    kernel = {"kind": "kernel", "operator": GRAPH.to_json()["operators"][0]}
    kernel["operator"].pop("inputs", None)
    sheet = {"name": "box", "vendor": "me", "kind": "gpu", "memory_gib": 4}
    refused = client.post("/v1/predict", json={"workload": kernel, "device": sheet})
    problem_of(refused, 422, slug="unknown-bandwidth")


def test_a_calibrated_upper_end_is_named_p95_and_the_risk_with_it(settings):
    """Of training alone: no predictor was calibrated on the memory of inference."""
    everything = MemoryDomain(dict.fromkeys(("dense", "mixed", "text"), 1e6), {}, ("fp32",))
    calibrated = Memory(quantiles=LogQuantiles({"all": (-0.1, 0.2)}), domain=everything)
    with client_of(settings, loaded_of(Roofline(), calibrated)) as client:
        trained, answered = ask(client), ask(client, phase="inference")
    peak = trained["metrics"][PEAK]
    assert peak["p95"] == peak["high"] == pytest.approx(peak["value"] * np.exp(0.2))
    assert "5 %" in trained["fits"]["risk"]
    assert answered["metrics"][PEAK]["p95"] is None
    assert "not calibrated" in answered["fits"]["risk"]


def test_a_limit_on_power_is_part_of_the_question(adapting):
    """The time's parts still add up, and what the sheet and the data do not tell is null."""
    free = ask(adapting, "a100-pcie-80gb", batch_size=65536)
    body = ask(adapting, "a100-pcie-80gb", {"power_limit_w": 120}, batch_size=65536)
    time, power = body["metrics"]["latency_ms"]["value"], body["metrics"]["power_w"]["value"]
    assert time > free["metrics"]["latency_ms"]["value"]
    assert power <= 120 < free["metrics"]["power_w"]["value"]
    assert sum(body["breakdown_ms"].values()) == pytest.approx(time)
    assert body["power"]["power_limit_w"] == 120
    assert body["power"]["peak_power_w"] is None
    assert body["power"]["missing"]["peak_power_w"].startswith("not measured")
    each = body["power"]["energy_per_sample_j"]["value"]
    assert each == pytest.approx(power * time / 1e3 / 65536)


def test_a_set_up_that_was_not_measured_makes_no_claim_of_coverage(adapting):
    for training in ({"checkpoint_segments": 2}, {"lora_rank": 4}, {"data_parallel": 2}):
        peak = ask(adapting, training=training)["metrics"][PEAK]
        assert peak["coverage"] is None
        assert peak["p95"] is None


def test_options_of_memory_reach_the_answer(client):
    plain = ask(client, batch_size=4096)["breakdown_mib"]
    fused = ask(client, batch_size=4096, training={"optimizer_kernel": "fused"})["breakdown_mib"]
    bare = ask(client, batch_size=4096, training={"optimizer": "none"})["breakdown_mib"]
    assert plain["optimizer"] >= fused["optimizer"] > bare["optimizer"] == 0.0


def test_options_of_inference_are_of_inference(client):
    given = {"attention": "eager", "logits": "all", "cache_tokens": 64}
    body = ask(client, phase="inference", inference=given)
    assert body["metrics"][PEAK]["value"] > 0
    network = {"kind": "network", "graph": GRAPH.to_json(), "phase": "training"}
    refused = client.post(
        "/v1/predict", json={"workload": network | {"inference": given}, "device": "l4"}
    )
    problem_of(refused, 422, "options of inference")


def test_an_option_without_effect_is_noted_and_changes_neither_answer_nor_domain(client):
    plain = ask(client, training={"optimizer": "sgd"})
    asked = ask(client, training={"optimizer": "sgd", "attention": "eager"})
    assert asked["metrics"] == plain["metrics"]
    assert asked["in_domain"] == plain["in_domain"]
    assert [line for line in asked["limits"] if line not in plain["limits"]] == [
        "memory: `attention` not used by this network, which has no attention operator"
    ]


def test_a_ranking_takes_the_options_of_memory(client):
    network = {"kind": "network", "graph": GRAPH.to_json(), "batch_size": 64, "phase": "training"}
    for training in ({"optimizer_kernel": "fused"}, {"checkpoint_blocks": True}, {"dropout": 0.1}):
        body = {"workload": network | {"training": training}, "devices": ["l4"]}
        found = client.post("/v1/rank", json=body).json()
        peak = found["ranked"][0]["metrics"][PEAK]
        assert peak["value"] == ask(client, training=training)["metrics"][PEAK]["value"]
    both = network | {"training": {"checkpoint_blocks": True, "checkpoint_segments": 2}}
    problem_of(client.post("/v1/rank", json={"workload": both, "devices": ["l4"]}), 422, "give one")


def test_upper_ends_of_all_calibrated_metrics_of_memory_are_named_p95(settings):
    """Tensors of inference were published; what the device takes in addition was not."""
    ranges = PublishedRanges(
        {"inference": 0.2},
        {"inference": 12},
        {"inference": 3},
        {"inference": ("allocated_memory_mib",)},
        {"inference/dense": SeenKind(2, 1e6, frozenset({"fp32", "runtime eager"}))},
    )
    with client_of(settings, loaded_of(Roofline(), CalibratedMemory(Memory(), ranges))) as client:
        body = ask(client, phase="inference", batch_size=8)
    allocated, peak = body["metrics"]["allocated_memory_mib"], body["metrics"][PEAK]
    assert allocated["p95"] == allocated["high"]
    assert allocated["coverage"] == 0.9
    assert peak["p95"] is peak["coverage"] is None
    assert any("12 published inference setups of 3 sources" in line for line in body["limits"])
