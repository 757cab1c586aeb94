"""Configurations by name are read, have the sizes that their makers state, and are found."""

import pytest

from forerun.data.errors import UnknownLanguageModel
from forerun.features.readers.language_model.reader import (
    named_config,
    named_language_model,
    named_model,
    named_models,
    read_language_model,
)
from tests.every import for_every

STATED = [name for name in named_models() if named_model(name).stated_parameters is not None]
NOT_MODELLED = {"hc_mult", "text_config.attn_res_block_size"}
"""Fields of residual streams, which cost no matrix."""


@for_every("name", named_models())
def test_every_configuration_is_read_whole(name):
    model = named_language_model(name)
    assert set(model.unread_fields) <= NOT_MODELLED
    assert model.weight_bytes() > 0
    assert model.cache_bytes(1000) > 0


@for_every("name", STATED)
def test_the_number_of_parameters_is_the_stated_one(name):
    stated = named_model(name).stated_parameters
    assert named_language_model(name).parameters() == pytest.approx(stated, rel=0.02)


ACTIVE = {
    # Jiang et al., "Mixtral of Experts", arXiv 2401.04088, and the model card of 8x22B
    "mistralai/Mixtral-8x7B-v0.1": 12.9,
    "mistralai/Mixtral-8x22B-v0.1": 39,
    # Qwen Team, "Qwen3 Technical Report", arXiv 2505.09388, and model cards
    "Qwen/Qwen3-30B-A3B": 3.3,
    "Qwen/Qwen3-235B-A22B": 22,
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": 35,
    "Qwen/Qwen3.5-397B-A17B": 17,
    "Qwen/Qwen3.5-122B-A10B": 10,
    # DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437; model cards of V4
    "deepseek-ai/DeepSeek-V3": 37,
    "deepseek-ai/DeepSeek-V4-Flash": 13,
    "deepseek-ai/DeepSeek-V4-Pro": 49,
    # OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", arXiv 2508.10925
    "openai/gpt-oss-120b": 5.13,
    "openai/gpt-oss-20b": 3.61,
    # Kimi Team, "Kimi K2: Open Agentic Intelligence", arXiv 2507.20534
    "moonshotai/Kimi-K2-Instruct": 32.6,
    # model cards
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": 17,
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": 17,
    "XiaomiMiMo/MiMo-V2-Flash": 15,
    "zai-org/GLM-5": 40,
    "MiniMaxAI/MiniMax-M2.5": 10,
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 3.2,
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": 12.7,
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": 55,
    "google/gemma-4-26B-A4B": 3.8,
}
"""Name -> billions of parameters that are active for one token."""


@for_every("name, active", ACTIVE.items())
def test_the_number_of_active_parameters_is_the_stated_one(name, active):
    """A maker counts embeddings among them or does not, so that both counts are accepted."""
    model = named_language_model(name)
    counts = model.active_parameters(), model.active_parameters() + model.table_parameters()
    assert min(abs(count / 1e9 / active - 1) for count in counts) < 0.05


def test_models_of_one_architecture_differ_in_the_formats_of_their_weights_alone():
    plain = named_language_model("Qwen/Qwen3-235B-A22B")
    quantised = named_language_model("nvidia/Qwen3-235B-A22B-NVFP4")
    assert plain.layers == quantised.layers
    assert plain.weight_bytes() == 2 * plain.parameters()
    assert quantised.weight_bytes() == pytest.approx(134e9, rel=0.02)
    assert quantised.cache_bytes(1000) == plain.cache_bytes(1000) / 2


@pytest.mark.parametrize(
    ("name", "gigabytes"), [("openai/gpt-oss-120b", 65.3), ("openai/gpt-oss-20b", 13.7)]
)
def test_weights_have_the_bytes_of_the_published_files(name, gigabytes):
    """Checkpoint sizes of the model card, arXiv 2508.10925: 60.8 and 12.8 GiB."""
    assert named_language_model(name).weight_bytes() / 1e9 == pytest.approx(gigabytes, rel=0.01)


@pytest.mark.parametrize(
    ("name", "kilobytes"),
    [
        # by hand: layers x key-value heads x (key + value width) x bytes
        ("meta-llama/Meta-Llama-3.1-8B", 32 * 8 * 256 * 2 / 1024),
        ("meta-llama/Meta-Llama-3.1-70B", 80 * 8 * 256 * 2 / 1024),
        ("Qwen/Qwen3-0.6B", 28 * 8 * 256 * 2 / 1024),
        # DeepSeek-V3: 61 layers keep a vector of 512 and rotary keys of 64
        ("deepseek-ai/DeepSeek-V3", 61 * 576 * 2 / 1024),
    ],
)
def test_keys_and_values_of_a_token(name, kilobytes):
    model = named_language_model(name)
    assert model.cache_bytes(4096) / 4096 / 1024 == pytest.approx(kilobytes)


def test_a_window_bounds_what_is_kept():
    model = named_language_model("openai/gpt-oss-20b")
    growth = model.cache_bytes(20_000) - model.cache_bytes(10_000)
    assert growth == 10_000 * 12 * 8 * 128 * 2  # every other layer of 24 keeps all tokens


def test_every_configuration_names_its_source():
    assert all(len(named_model(name).source) > 10 for name in named_models())


def test_no_name_stands_for_two_configurations():
    every = [n for name in named_models() for n in (name, *named_model(name).also)]
    assert len({name.lower() for name in every}) == len(every)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B"),
        ("META-LLAMA/llama-3.1-8b-INSTRUCT", "meta-llama/Meta-Llama-3.1-8B"),
        ("llama-3.1-8b", "meta-llama/Meta-Llama-3.1-8B"),
        ("llama3.1:8b", "meta-llama/Meta-Llama-3.1-8B"),
        (" llama3_8b ", "meta-llama/Meta-Llama-3-8B"),
        ("meta-llama/llama-2-70b-chat", "meta-llama/Llama-2-70b-hf"),
        ("llama2-70b", "meta-llama/Llama-2-70b-hf"),
        ("bloom-176b", "bigscience/bloom"),
        ("mixtral-8x22b-instruct-v0.1", "mistralai/Mixtral-8x22B-Instruct-v0.1"),
        ("gemma-3-12b", "google/gemma-3-12b-it"),
        ("Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-32B-FP8"),
        ("zhipuai/GLM-5", "zai-org/GLM-5"),
    ],
)
def test_a_name_is_found_in_any_case_with_or_without_its_owner(asked, name):
    assert named_model(asked).name == name


@pytest.mark.parametrize(
    ("asked", "suggested"),
    [
        ("lama-3.1-8b", "llama-3.1-8b"),
        ("llama-3.1-9b", "llama-3.1-8b"),
        ("someone/llama-3.1-8b", "llama-3.1-8b"),
        ("mixtral-8x7", "mixtral-8x7b"),
    ],
)
def test_an_unknown_name_is_refused_with_similar_ones(asked, suggested):
    with pytest.raises(UnknownLanguageModel, match=r"Give its config\.json") as raised:
        named_model(asked)
    assert suggested in raised.value.did_you_mean


@pytest.mark.parametrize("asked", ["", "/", "instruct", "x" * 10_000])
def test_what_is_no_name_is_refused_in_one_short_line(asked):
    with pytest.raises(UnknownLanguageModel) as raised:
        named_model(asked)
    assert len(str(raised.value)) < 300


def test_a_configuration_may_be_changed_without_changing_the_next_answer():
    named_config("Qwen/Qwen3-32B-FP8")["quantization_config"].clear()
    changed = named_config("qwen3-0.6b")
    changed["hidden_size"] = 1
    assert named_config("qwen3-0.6b")["hidden_size"] == 1024
    assert named_config("qwen3-32b-fp8")["quantization_config"]["quant_method"] == "fp8"


def test_what_is_built_in_describes_the_models_as_their_whole_files_do(reference):
    folder = reference / "hf_configs" / "configs"
    files = [p for p in sorted(folder.glob("*_config.json")) if "hf_quant" not in p.name]
    assert len(files) == 86
    for path in files:
        apart = path.with_name(path.name.replace("_config.json", "_hf_quant_config.json"))
        whole = read_language_model(path, apart if apart.exists() else None)
        name = path.name.removesuffix("_config.json").replace("--", "/")
        assert named_language_model(name) == whole, name


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("aiconfigurator/e2e_serving.parquet", "model_path"),
        ("vidur/ops_mlp.parquet", "model"),
        ("apex/e2e_h100x8.csv", "model"),
        ("splitwise/perf_model.csv", "model"),
        ("llmservingsim/dense.parquet", "model"),
        ("llmservingsim/v0_layers.parquet", "model"),
        ("llm_inference_bench/results.csv", "model"),
        ("mlenergy/mlenergy_v3_runs.csv", "model_id"),
        ("mlenergy/mlenergy_v1_chat_v100_a40_a100.csv", "model"),
    ],
)
def test_every_model_of_the_measured_tables_has_a_configuration(reference, table, column):
    import pandas as pd

    path = reference / table
    rows = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    if "task" in rows.columns:
        rows = rows[~rows["task"].str.contains("image|video", case=False)]
    names = rows[column].dropna().unique()
    unknown = {name for name in names if not _known(name)}
    assert unknown <= WITHOUT


def _known(name):
    try:
        return named_language_model(name) is not None
    except UnknownLanguageModel:
        return False


WITHOUT = {
    "Deci/DeciLM-7B",  # number of key-value heads by layer, in no public source at hand
    "Neutralzz/BiLLa-7B-SFT",  # vocabulary not stated
    "RWKV/rwkv-raven-7b",  # recurrent, of a kind that is not described
}
"""Models of the tables that have no configuration here."""
