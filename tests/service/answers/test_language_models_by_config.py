"""A language model that serves is described by its config.json, or by its sizes."""

import json

import pytest

import forerun
from forerun.data.errors import InputError
from forerun.service.http.app import create_app
from tests.features.readers.language_model.test_bad_configurations import LATENT, LLAMA, MIXTURE

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
    assert ("nvfp4 weights: the sheet has no fp4 peak, so products are in bf16" in said) == (
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
    by_file = forerun.llm(config=path, device="h100-sxm-80gb")
    read = by_file.content.model
    assert read.family == "llama"
    assert (read.image_parameters, read.image_pixels_per_token) == (0, None)
    assert by_file.metrics == forerun.llm(config=LLAMA, device="h100-sxm-80gb").metrics
    with pytest.raises(InputError, match="No such file"):
        forerun.llm(config=tmp_path / "other.json", device="h100-sxm-80gb")
