"""Serving, co-location and devices answer as over HTTP."""

import json

import pytest

import forerun
from forerun.data.errors import InputError, UnknownDevice
from forerun.service.schemas.serving import EXAMPLE_DIFFUSION, EXAMPLE_LLM
from tests.service.answers.llm.predictors import LLAMA

PROFILE = {"name": "mine", "alone": {"cpu.user_share": 1.0, "probe.latency_ns": 30.0}}


def test_models_that_serve_answer_as_over_http(client):
    answer = forerun.llm(**EXAMPLE_LLM["model"], device=EXAMPLE_LLM["device"])
    assert answer.to_dict() == client.post("/v1/llm/estimate", json=EXAMPLE_LLM).json()
    assert answer.power_w.low < answer.power_w.value < answer.power_w.high
    assert answer.energy_per_token_j.value == pytest.approx(
        answer.power_w.value / answer.tokens_per_s.value
    )
    pictures = forerun.diffusion(**EXAMPLE_DIFFUSION["model"], device=EXAMPLE_DIFFUSION["device"])
    assert (
        pictures.to_dict() == client.post("/v1/diffusion/estimate", json=EXAMPLE_DIFFUSION).json()
    )
    assert pictures.latency_ms.unit == "ms"
    assert pictures.samples_per_s.unit == "samples/s"
    assert pictures.energy_per_sample_j.unit == "J"
    assert pictures.tokens_per_s is None
    assert "peak_memory_mib" in answer.missing


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tensor_parallel": 2}, "tensor_parallel cannot be more than device_count, 1"),
        ({"request": "poem"}, "model.request 'poem'"),
        ({"active_parameters": 9e9}, "active_parameters cannot be more than total_parameters"),
    ],
)
def test_a_model_that_cannot_be_served_is_refused(options, said):
    with pytest.raises(forerun.InputError, match=said):
        forerun.llm(8e9, device="h100-sxm-80gb", **options)


def test_a_deployment_answers_as_over_http(client):
    answer = forerun.llm(
        name="llama-3.1-8b", device="h100_sxm", input_tokens=1024, output_tokens=256,
        concurrency=32, engine="vllm", parallelism={"tp": 1}, usd_per_device_hour=3,
    )  # fmt: skip
    request = {"model": "llama-3.1-8b", "device": "h100-sxm-80gb", "isl": 1024, "osl": 256}
    request |= {"concurrency": 32, "tp": 1, "usd_per_device_hour": 3}
    assert answer.to_dict() == client.post("/v1/llm/estimate", json=request).json()
    assert answer.tpot_ms.value > 0
    assert answer.ttft_ms.value > answer.metrics["ttft_service_ms"].value
    assert answer.deployment.price.source == "as given"
    dollars = 3 / 3600 / answer.tokens_per_s.value * 1e6
    assert answer.usd_per_million_tokens.value == pytest.approx(dollars)
    assert "weights take" in str(answer)
    by_size = forerun.llm(8e9, device="h100-sxm-80gb")
    assert (by_size.ttft_ms, by_size.deployment) == (None, None)
    with pytest.raises(forerun.InputError, match="output_tokens is missing"):
        forerun.llm(name="llama-3.1-8b", device="h100", input_tokens=1)


def test_names_of_other_tools_are_taken_for_a_language_model_and_unknown_ones_refused():
    given = {"name": "llama-3.1-8b", "device": "h100", "isl": 1024, "osl": 256, "tp": 1}
    answer = forerun.llm(**given, request_rate=2.0)
    same = forerun.llm(
        name="llama-3.1-8b",
        device="h100",
        input_tokens=1024,
        output_tokens=256,
        requests_per_s=2.0,
        parallelism={"tensor": 1},
    )
    assert answer.to_dict() == same.to_dict()
    assert answer.requests_per_s.value == 2.0
    assert answer.ttft_service_ms.value < answer.request_latency_ms.value
    with pytest.raises(forerun.InputError, match="did you mean concurrency"):
        forerun.llm(**given, concurency=2)


def test_programs_on_one_host_answer_as_over_http(client, tmp_path):
    other = PROFILE | {"name": "other"}
    file = tmp_path / "other.json"
    file.write_text(json.dumps(other))
    answer = forerun.colocate(PROFILE, residents=[file], cpus=2)
    asked = {"candidate": PROFILE, "host": {"residents": [other], "cpus": 2}}
    assert answer.to_dict() == client.post("/v1/colocation", json=asked).json()
    assert answer.candidate.program == "mine"
    assert [program.program for program in answer.residents] == ["other"]
    assert answer.candidate.p_cpu.value > 0
    assert answer.candidate.grade in ("A", "B", "C")
    assert answer.worst in ("mine", "other")
    assert f"{answer.candidate.p_wall.value:.2f}" in str(answer)


def test_a_profile_that_is_none_is_refused():
    with pytest.raises(forerun.InputError, match="name"):
        forerun.colocate({"alone": {}})
    with pytest.raises(forerun.InputError, match=r"Cannot read gone\.json"):
        forerun.colocate("gone.json")


def test_devices_are_found_by_kind_vendor_and_name():
    everything = forerun.devices()
    gpus = forerun.devices(kind="gpu", vendor="NVIDIA")
    assert 0 < len(gpus) < len(everything)
    assert {device.kind for device in gpus} == {"gpu"}
    assert everything["NVIDIA L4"].name == "l4"
    assert everything[0].name == everything.names()[0]
    assert everything.to_dict()["devices"][0]["name"] == everything[0].name
    with pytest.raises(UnknownDevice):
        forerun.devices(kind="cpu")["l4"]
    with pytest.raises(forerun.InputError, match="kind 'toaster' is none of"):
        forerun.devices(kind="toaster")


def test_a_language_model_is_read_from_its_folder_with_its_quantisation(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    lengths = {"input_tokens": 1024, "output_tokens": 256, "concurrency": 4}
    plain = forerun.llm(config=tmp_path, device="h100", **lengths)
    assert forerun.llm(config=LLAMA, device="h100", **lengths).tpot_ms == plain.tpot_ms
    (tmp_path / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')
    quantized = forerun.llm(config=tmp_path / "config.json", device="h100", **lengths)
    assert quantized.tpot_ms.value < plain.tpot_ms.value
    given = forerun.llm(config=tmp_path, quantization="int4", device="h100", **lengths)
    assert given.tpot_ms.value < quantized.tpot_ms.value


def test_a_list_of_devices_is_refused_where_one_is_taken():
    with pytest.raises(InputError, match="ask for each"):
        forerun.llm(8e9, device=["h100", "l4"])
