"""Presets, and the list of workloads: every question in them is answered as it stands."""

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.errors import UnknownPreset
from forerun.data.measurements import Measurements
from forerun.data.named.networks import network_names
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.own_tables import TableBoost
from forerun.service.presets import LLM, PREDICT, as_prediction, preset_named, presets
from tests.every import for_every
from tests.service.answered import content_of
from tests.service.conftest import client_of, loaded_of


@for_every("preset", presets())
def test_every_preset_is_answered(adapting, preset):
    content = content_of(adapting.post(preset.endpoint, json=preset.request))
    if "metrics" in content:
        assert set(content["metrics"]) | set(content["missing"])
        unknown = {name for name, estimate in content["metrics"].items() if estimate is None}
        assert unknown <= set(content["missing"])
        # The public sample of processor suites holds one machine: its scores are withheld.
        assert unknown != set(content["metrics"]) or preset.name == "spec-integer"


def test_presets_are_named_once_and_apart_from_networks():
    names = [preset.name for preset in presets()]
    assert 20 <= len(names) == len(set(names)) <= 40
    assert not set(names) & set(network_names())


def test_an_unknown_preset_is_an_error_with_similar_names():
    assert preset_named("nb201-phone").kind == "architecture"
    with pytest.raises(UnknownPreset, match="Did you mean nb201-phone"):
        preset_named("nb201-phones")


def test_served_models_are_the_same_question_over_predict(adapting):
    served = [preset for preset in presets() if preset.kind in ("llm_serving", "diffusion")]
    assert len(served) >= 3
    for preset in served:
        own = adapting.post(preset.endpoint, json=preset.request).json()["metrics"]
        asked = as_prediction(preset.endpoint, preset.request)
        metrics = adapting.post("/v1/predict", json=asked).json()["metrics"]
        assert {name: estimate["value"] for name, estimate in own.items()} == {
            name: estimate["value"] for name, estimate in metrics.items()
        }
        assert metrics["power_w"]["high"] == own["power_w"]["high"]


def test_a_request_with_lengths_is_the_same_question_over_predict(adapting):
    asked = {"model": {"name": "llama-3.1-8b"}, "device": "h100", "isl": 512, "osl": 64}
    asked |= {"concurrency": 4, "tp": 2, "device_count": 2}
    own = adapting.post(LLM, json=asked).json()["metrics"]
    same = adapting.post(PREDICT, json=as_prediction(LLM, asked)).json()["metrics"]
    values = {name: estimate["value"] for name, estimate in same.items() if estimate is not None}
    assert values == {name: estimate["value"] for name, estimate in own.items()}


def test_the_list_of_presets_is_served(client):
    listed = client.get("/v1/presets").json()["presets"]
    assert [preset["name"] for preset in listed] == [preset.name for preset in presets()]
    assert all(preset["note"].endswith(".") for preset in listed)


def test_every_kind_of_workload_has_fields_metrics_and_an_answered_example(adapting):
    content = adapting.get("/v1/workloads").json()
    kinds = {workload["kind"] for workload in content["workloads"]}
    assert kinds == {preset.kind for preset in presets()}
    for workload in content["workloads"]:
        assert all(field["description"] for field in workload["fields"])
        assert bool(workload["metrics"]) == (workload["kind"] != "benchmark")
        content_of(adapting.post(workload["endpoint"], json=workload["example"]))
    forms = {workload["form"]: workload for workload in content["workloads"]}
    (blocks,) = (field for field in forms["fbnet"]["fields"] if field["name"] == "blocks")
    assert blocks["required"]
    assert "k3_e6" in blocks["values"]
    assert "pixel3" in forms["nb201"]["devices"]
    assert "v100-1" in forms["ofa"]["devices"]


def test_suites_are_listed_with_required_settings_and_their_values(adapting):
    suites = {suite["name"]: suite for suite in adapting.get("/v1/workloads").json()["suites"]}
    assert {"mlperf_inference", "zeus_powercap", "hls4ml dense layer"} <= set(suites)
    settings = {s["name"]: s for s in suites["mlperf_inference"]["settings"]}
    assert {name for name, s in settings.items() if s["required"]} == {"model", "scenario"}
    assert settings["scenario"]["values"] == ["MultiStream", "Offline", "Server", "SingleStream"]
    assert "cloud-ai-100-pro" in suites["mlperf_inference"]["devices"]
    layer = {s["name"]: s for s in suites["hls4ml dense layer"]["settings"]}
    assert (layer["d_in"]["low"], layer["d_in"]["high"], layer["d_in"]["required"]) == (
        *(32.0, 256.0, True),
    )


def test_without_such_predictors_the_list_says_so(client):
    content = client.get("/v1/workloads").json()
    assert content["suites"] == []
    assert all(not w["devices"] for w in content["workloads"] if w["kind"] == "architecture")


def test_a_table_of_a_user_is_listed_and_asked_like_any_suite(settings):
    sizes = np.arange(1.0, 25.0)
    device = DeviceCatalog.load().get("l4")
    tests = [Query(Benchmark("mine", (("n", n),)), device) for n in sizes]
    table = TableBoost(table="mine", trees=20).fit(Measurements(tests, {"latency_ms": 2.0 * sizes}))
    with client_of(settings, loaded_of(table)) as client:
        (suite,) = client.get("/v1/workloads").json()["suites"]
        assert (suite["name"], [own["name"] for own in suite["settings"]]) == ("mine", ["n"])
        workload = {"kind": "benchmark", "suite": "mine", "settings": {"n": 7}}
        answer = client.post("/v1/predict", json={"workload": workload, "device": "l4"})
        assert answer.json()["metrics"]["latency_ms"]["value"] == pytest.approx(14.0, rel=0.1)
