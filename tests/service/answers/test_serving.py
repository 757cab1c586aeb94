"""Generative models that serve, by sizes or config.json: figures agree, faults are reported."""

import json

import pytest
from fastapi.testclient import TestClient

import forerun
from forerun.data.errors import InputError
from forerun.models.artifact.sealed_folder import bundled
from forerun.service.http.app import create_app
from forerun.service.schemas.serving import EXAMPLE_DIFFUSION, EXAMPLE_LLM
from tests.features.readers.language_model.test_bad_configurations import LATENT, LLAMA, MIXTURE

LLM, DIFFUSION = "/v1/llm/estimate", "/v1/diffusion/estimate"


@pytest.fixture(scope="module")
def loaded():
    return bundled()


@pytest.fixture
def service(settings, loaded):
    with TestClient(create_app(settings, loaded), raise_server_exceptions=False) as client:
        yield client


def asked(service, path, **changes):
    example = EXAMPLE_LLM if path == LLM else EXAMPLE_DIFFUSION
    answer = service.post(path, json={**example, **changes})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_energy_of_a_token_is_power_of_all_devices_over_their_rate(service):
    body = asked(service, LLM, device_count=2)
    power, rate, energy = (
        body["metrics"][name]["value"] for name in ("power_w", "tokens_per_s", "energy_per_token_j")
    )
    assert energy == pytest.approx(2 * power / rate)
    assert body["device_count"] == 2


def test_energy_of_a_picture_is_power_times_the_time_it_takes(service):
    metrics = asked(service, DIFFUSION)["metrics"]
    rate = metrics["samples_per_s"]["value"]
    assert metrics["energy_per_sample_j"]["value"] == pytest.approx(
        metrics["power_w"]["value"] / rate
    )
    assert rate == pytest.approx(4e3 / metrics["latency_ms"]["value"])


def test_weights_that_do_not_fit_have_no_rate(service):
    changes = {"model": {"total_parameters": 7e10}, "device": "h100-sxm-80gb"}
    refused = service.post(LLM, json={**EXAMPLE_LLM, **changes})
    assert refused.status_code == 422
    assert "weights alone take 130 GiB, the devices have 80" in refused.json()["detail"]
    enough = asked(service, LLM, model={"total_parameters": 7e10}, device_count=2)
    assert not any("weights alone" in line for line in enough["limits"])


@pytest.mark.parametrize("device", ["h100-sxm-80gb-mig-1g-10gb", "l4-12c"])
def test_slices_and_shares_are_answered_without_lengths_as_far_as_weights_fit(service, device):
    found = asked(service, LLM, device=device, model={"total_parameters": 1.2e9})["metrics"]
    assert found["tokens_per_s"]["value"] > 0
    refused = service.post(LLM, json={**EXAMPLE_LLM, "device": device})
    detail = refused.json()["detail"]
    assert "Nothing is answered: weights alone take 15 GiB" in detail
    assert "no link joins one" in detail


def test_no_rate_is_faster_than_weights_can_be_read(service):
    """Eight billion weights of two bytes are read 209 times a second at 3,352 GB/s."""
    model = {"total_parameters": 8e9, "max_sequences": 1}
    metrics = asked(service, LLM, model=model)["metrics"]
    rate, energy = metrics["tokens_per_s"], metrics["energy_per_token_j"]
    assert rate["low"] < rate["value"] < rate["high"] <= 209.6
    assert energy["low"] >= metrics["power_w"]["low"] / 209.6


def test_power_outside_the_training_range_has_the_lowest_grade(service):
    for sequences, grade in ((64, "A"), (1, "C")):
        model = {"total_parameters": 8e9, "max_sequences": sequences}
        metrics = asked(service, LLM, model=model)["metrics"]
        assert metrics["power_w"]["grade"] == metrics["tokens_per_s"]["grade"] == grade


def test_no_device_draws_more_than_it_holds_itself_to(service):
    power = asked(service, LLM, device="l4")["metrics"]["power_w"]
    assert power["low"] <= power["value"] <= power["high"] <= max(72.0, power["value"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"device": "epyc-7742"}, "Times on epyc-7742 follow from lengths"),
        ({"device": "h101"}, "h101"),
        ({"model": {"total_parameters": 1e9, "active_parameters": 2e9}}, "cannot be more"),
        ({"model": {"total_parameters": 1e9, "experts_per_token": 2}}, "cannot be more"),
        ({"model": {"total_parameters": -1}}, "greater than or equal to 100000"),
        ({"device_count": 0}, "greater than or equal to 1"),
        ({"model": {"total_parameters": 1e9, "tensor_parallel": 4}}, "more than device_count, 1"),
    ],
)
def test_an_invalid_request_says_what_is_wrong(service, changes, said):
    answer = service.post(LLM, json={**EXAMPLE_LLM, **changes})
    assert answer.status_code in (404, 422)
    assert said in answer.json()["detail"]


ESTIMATE = "/v1/llm/estimate"
SERVED = {"max_sequences": 32, "tensor_parallel": 8}


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    from fastapi.testclient import TestClient

    from forerun.service.settings import Settings

    with TestClient(create_app(Settings(home=tmp_path_factory.mktemp("home")))) as client:
        yield lambda **model: client.post(
            ESTIMATE, json={"model": model | SERVED, "device": "h100-sxm-80gb", "device_count": 8}
        )


@pytest.mark.parametrize("config", [LLAMA, MIXTURE, LATENT], ids=lambda c: c["model_type"])
def test_the_answer_is_that_of_the_sizes_which_it_names(ask, config):
    answer = ask(config=config).json()
    read = answer["model"]
    names = ("total_parameters", "active_parameters", "architecture", "experts")
    names += ("experts_per_token", "cache_bytes_per_token", "weights")
    by_sizes = ask(**{name: read[name] for name in names}).json()
    assert by_sizes["metrics"] == answer["metrics"]
    assert by_sizes["model"] is None


def test_experts_that_no_token_passes_are_not_active(ask):
    read = ask(config=MIXTURE).json()["model"]
    unused = 4 * (128 - 8) * 3 * 2048 * 768
    assert read["total_parameters"] - read["active_parameters"] == unused
    assert (read["experts"], read["experts_per_token"]) == (128, 8)
    dense = ask(config=LLAMA).json()["model"]
    assert dense["total_parameters"] == dense["active_parameters"]


def test_what_no_predictor_asks_is_said_too(ask):
    tower = {"depth": 2, "hidden_size": 64, "intermediate_size": 256, "patch_size": 16}
    config = {
        "model_type": "qwen3_vl", "text_config": LLAMA | {"model_type": "qwen3_vl_text"},
        "vision_config": tower | {"spatial_merge_size": 2},
    }  # fmt: skip
    read = ask(config=config).json()["model"]
    assert read["image_pixels_per_token"] == 32
    assert read["image_parameters"] == 2 * (4 * 64**2 + 2 * 64 * 256) + 256 * (256 + 4096)
    assert read["total_parameters"] == ask(config=LLAMA).json()["model"]["total_parameters"]
    drafting = ask(config=LATENT | {"num_nextn_predict_layers": 1}).json()["model"]
    assert (drafting["draft_layers"], read["draft_layers"]) == (1, 0)
    assert read["most_tokens"] is None


def test_weights_are_those_of_the_configuration_unless_they_are_given(ask):
    read = ask(config=LATENT).json()
    assert read["model"]["weights"] == "fp8"
    assert ask(config=LATENT, weights="fp8").json()["metrics"] == read["metrics"]
    assert ask(config=LATENT, weights="bf16").json()["metrics"] != read["metrics"]


@pytest.mark.parametrize(
    ("block", "weights"),
    [({"quant_algo": "NVFP4"}, "nvfp4"), ({"quant_method": "awq", "bits": 4}, "int4")],
)
def test_weights_of_four_bits_are_answered_with_what_products_are_in(ask, block, weights):
    answer = ask(config=LLAMA | {"quantization_config": block}).json()
    assert answer["model"]["weights"] == weights
    assert answer["metrics"]["tokens_per_s"]["value"] > 0
    said = " ".join(answer["limits"])
    assert f"no language model in {weights} was in the training set" in said
    assert ("nvfp4 weights: no fp4 peak on the sheet, so products in bf16" in said) == (
        weights == "nvfp4"
    )


@pytest.mark.parametrize(
    ("model", "says", "pointer"),
    [
        (
            {"config": LLAMA | {"hidden_size": -1}},
            "hidden_size is -1",
            "#/model/config/hidden_size",
        ),
        ({"config": LLAMA | {"model_type": "x"}}, "'x' is not known", "#/model/config/model_type"),
        ({"config": LLAMA, "experts": 3}, "experts follows from config", "#/model"),
        ({}, "total_parameters is missing", "#/model"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(ask, model, says, pointer):
    refused = ask(**model)
    assert refused.status_code == 422
    assert says in refused.json()["detail"]
    assert refused.json()["errors"][0]["pointer"] == pointer


def test_python_takes_a_file_or_its_content(tmp_path, monkeypatch):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    by_file = forerun.llm(path, device="h100-sxm-80gb")
    read = by_file.content.model
    assert read.family == "llama"
    assert (read.image_parameters, read.image_pixels_per_token) == (0, None)
    assert by_file.metrics == forerun.llm(LLAMA, device="h100-sxm-80gb").metrics
    with pytest.raises(InputError, match="No such file"):
        forerun.llm(tmp_path / "other.json", device="h100-sxm-80gb")
