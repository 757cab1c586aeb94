"""Real configurations are read, and their sizes are those that the makers state.

Stated sizes are from model cards and reports; a maker counts embeddings among the active parameters
or does not, so that both counts are accepted.
"""

from pathlib import Path

import pytest

from forerun.features.readers.language_model.reader import read_language_model
from tests.every import for_every

pytestmark = pytest.mark.reference

STATED = {
    # Grattafiori et al., "The Llama 3 Herd of Models", arXiv 2407.21783
    "meta-llama--Meta-Llama-3.1-8B": (8.0, None),
    "meta-llama--Meta-Llama-3.1-70B": (70.6, None),
    "meta-llama--Meta-Llama-3.1-405B": (405, None),
    # Jiang et al., "Mixtral of Experts", arXiv 2401.04088, and the model card of 8x22B
    "mistralai--Mixtral-8x7B-v0.1": (46.7, 12.9),
    "mistralai--Mixtral-8x22B-v0.1": (141, 39),
    # Qwen Team, "Qwen3 Technical Report", arXiv 2505.09388, and model cards
    "Qwen--Qwen3-0.6B": (0.6, None),
    "Qwen--Qwen3-8B": (8.2, None),
    "Qwen--Qwen3-32B": (32.8, None),
    "Qwen--Qwen3-30B-A3B": (30.5, 3.3),
    "Qwen--Qwen3-235B-A22B": (235, 22),
    "Qwen--Qwen3-Coder-480B-A35B-Instruct": (480, 35),
    "Qwen--Qwen3.5-397B-A17B": (397, 17),
    "Qwen--Qwen3.5-122B-A10B": (122, 10),
    "Qwen--Qwen3.5-27B": (27, None),
    # DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437; model cards of V4
    "deepseek-ai--DeepSeek-V3": (671, 37),
    "deepseek-ai--DeepSeek-V4-Flash": (284, 13),
    "deepseek-ai--DeepSeek-V4-Pro": (1600, 49),
    # OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", arXiv 2508.10925
    "openai--gpt-oss-120b": (116.83, 5.13),
    "openai--gpt-oss-20b": (20.91, 3.61),
    # Kimi Team, "Kimi K2: Open Agentic Intelligence", arXiv 2507.20534
    "moonshotai--Kimi-K2-Instruct": (1040, 32.6),
    # model cards
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": (109, 17),
    "meta-llama--Llama-4-Maverick-17B-128E-Instruct": (400, 17),
    "XiaomiMiMo--MiMo-V2-Flash": (309, 15),
    "zai-org--GLM-5": (744, 40),
    "MiniMaxAI--MiniMax-M2.5": (230, 10),
    "nvidia--Llama-3_3-Nemotron-Super-49B-v1": (49.9, None),
    "nvidia--Nemotron-H-56B-Base-8K": (56, None),
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (31.6, 3.2),
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8": (120.6, 12.7),
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": (550, 55),
    "nvidia--Gemma-4-31B-IT-NVFP4": (30.7, None),
    "google--gemma-4-26B-A4B": (25.2, 3.8),
}
"""File -> billions of parameters of the language model: all, and those active for one token."""
NOT_MODELLED = {"hc_mult", "attn_res_block_size"}
"""Fields of residual streams, which cost no matrix and are named to the user."""


@pytest.fixture(scope="module")
def models(reference):
    folder = reference / "hf_configs" / "configs"
    files = [p for p in sorted(folder.glob("*_config.json")) if "hf_quant" not in p.name]
    return {path.name.removesuffix("_config.json"): _read(path) for path in files}


def _read(path: Path):
    apart = path.with_name(path.name.replace("_config.json", "_hf_quant_config.json"))
    return read_language_model(path, apart if apart.exists() else None)


def test_every_configuration_is_read_and_no_field_of_meaning_is_left_out(models):
    assert len(models) == 86
    unread = {name.rpartition(".")[2] for model in models.values() for name in model.unread_fields}
    assert unread <= NOT_MODELLED


@for_every("name", STATED)
def test_the_number_of_parameters_is_the_stated_one(models, name):
    model, (whole, active) = models[name], STATED[name]
    assert model.parameters() / 1e9 == pytest.approx(whole, rel=0.02)
    if active is not None:
        counts = model.active_parameters(), model.active_parameters() + model.table_parameters()
        assert min(abs(count / 1e9 / active - 1) for count in counts) < 0.05


def test_models_of_one_architecture_differ_in_the_formats_of_their_weights_alone(models):
    plain, quantised = models["Qwen--Qwen3-235B-A22B"], models["nvidia--Qwen3-235B-A22B-NVFP4"]
    assert plain.layers == quantised.layers
    assert plain.weight_bytes() == 2 * plain.parameters()
    assert quantised.weight_bytes() == pytest.approx(134e9, rel=0.02)
    assert quantised.cache_bytes(1000) == plain.cache_bytes(1000) / 2


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        # checkpoint sizes of the model card, arXiv 2508.10925: 60.8 and 12.8 GiB
        ("openai--gpt-oss-120b", 65.3),
        ("openai--gpt-oss-20b", 13.7),
    ],
)
def test_weights_have_the_bytes_of_the_published_files(models, name, gigabytes):
    assert models[name].weight_bytes() / 1e9 == pytest.approx(gigabytes, rel=0.01)


@pytest.mark.parametrize(
    ("name", "kilobytes"),
    [
        # by hand: layers x key-value heads x (key + value width) x bytes
        ("meta-llama--Meta-Llama-3.1-8B", 32 * 8 * 256 * 2 / 1024),
        ("meta-llama--Meta-Llama-3.1-70B", 80 * 8 * 256 * 2 / 1024),
        ("Qwen--Qwen3-0.6B", 28 * 8 * 256 * 2 / 1024),
        # DeepSeek-V3: 61 layers keep a vector of 512 and rotary keys of 64
        ("deepseek-ai--DeepSeek-V3", 61 * 576 * 2 / 1024),
    ],
)
def test_keys_and_values_of_a_token(models, name, kilobytes):
    model = models[name]
    assert model.cache_bytes(4096) / 4096 / 1024 == pytest.approx(kilobytes)


def test_a_window_bounds_what_is_kept(models):
    model = models["openai--gpt-oss-20b"]
    growth = model.cache_bytes(20_000) - model.cache_bytes(10_000)
    assert growth == 10_000 * 12 * 8 * 128 * 2  # every other layer of 24 keeps all tokens
