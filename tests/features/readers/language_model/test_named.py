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


@pytest.mark.reference
def test_what_is_built_in_describes_the_models_as_their_whole_files_do(reference):
    folder = reference / "hf_configs" / "configs"
    files = [p for p in sorted(folder.glob("*_config.json")) if "hf_quant" not in p.name]
    assert len(files) == 86
    for path in files:
        apart = path.with_name(path.name.replace("_config.json", "_hf_quant_config.json"))
        whole = read_language_model(path, apart if apart.exists() else None)
        name = path.name.removesuffix("_config.json").replace("--", "/")
        assert named_language_model(name) == whole, name


@pytest.mark.reference
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
