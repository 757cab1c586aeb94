"""Configurations of language models that are wrong."""

import copy
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.data.errors import InputError, ModelTooLarge, UnreadableModel
from forerun.features.readers.language_model import reader
from forerun.features.readers.language_model.reader import (
    named_config,
    named_models,
    read_language_model,
)
from tests.every import for_every

# A configuration that is damaged or contradicts itself is refused with the name of the field.


LLAMA = {
    **{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32},
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336},
    **{"vocab_size": 128256, "torch_dtype": "bfloat16"},
}
MIXTURE = {
    **{"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 4, "head_dim": 128},
    **{"num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 6144},
    **{"vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8},
    **{"moe_intermediate_size": 768},
}
SCALED = {"max_position_embeddings": 32_768, "rope_scaling": {"factor": 4.0}}
LATENT = {
    **{"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 6},
    **{"num_attention_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536, "v_head_dim": 128},
    **{"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "intermediate_size": 18432},
    **{"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8},
    **{"moe_intermediate_size": 2048, "first_k_dense_replace": 3, "vocab_size": 129280},
    "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["lm_head"]},
}


@for_every(
    "base, change, says",
    [
        (LLAMA, {"model_type": "llama9"}, "model_type 'llama9' is not known; known are aquila"),
        (
            LLAMA,
            {"model_type": "bert"},
            "'bert', which is not read: it is an encoder",
        ),
        (LLAMA, {"model_type": "jamba"}, "is 'jamba', which is not read: its kind of layers"),
        (LLAMA, {"model_type": None}, "model_type is missing"),
        (LLAMA, {"hidden_size": None}, "hidden_size is missing"),
        (LLAMA, {"hidden_size": -4096}, "hidden_size is -4096, not from 1"),
        (LLAMA, {"hidden_size": "4096"}, "hidden_size is '4096', not a whole number"),
        (LLAMA, {"hidden_size": True}, "hidden_size is True, not a whole number"),
        (LLAMA, {"hidden_size": 1e300}, r"hidden_size is 1e\+300, not from 1"),
        (LLAMA, {"hidden_size": 4100}, "hidden_size is 4100, which 32 heads do not divide"),
        (LLAMA, {"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000, not from 1 to 4096"),
        (LLAMA, {"num_key_value_heads": 7}, "num_key_value_heads is 7, which does not divide 32"),
        (LLAMA, {"n_layer": 31}, "num_hidden_layers is 32 but n_layer is 31"),
        (LLAMA, {"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no', not true or false"),
        (LLAMA, {"layer_types": ["full_attention"]}, "layer_types has 1 entries for 32 layers"),
        (LLAMA, {"layer_types": ["sideways"] * 32}, "layer_types names 'sideways'; known are"),
        (LLAMA, {"layer_types": ["sliding_attention"] * 32}, "sliding_window is missing"),
        (LLAMA, {"quantization_config": {"quant_method": "x3"}}, "quant_method 'x3' is not known"),
        (LLAMA, {"quantization_config": "fp8"}, "quantization_config is 'fp8', not an object"),
        (LLAMA, {"quantization_config": {"quant_method": "gptq", "bits": 3}}, "bits is 3; weights"),
        (LLAMA, {"quantization_config": {"quant_method": "bitsandbytes"}}, "are both false"),
        (LLAMA, {"torch_dtype": "float7"}, "torch_dtype is 'float7'; it is float32, bfloat16 or"),
        (LLAMA, {"rope_scaling": "yes"}, "rope_scaling is 'yes', not an object"),
        (LLAMA, {"rope_scaling": {"factor": "x"}}, "rope_scaling has factor 'x', not a"),
        (LLAMA, {"rope_parameters": {"factor": -2}}, "rope_parameters has factor -2, not a"),
        (MIXTURE, {"num_experts_per_tok": 129}, "num_experts_per_tok is 129, more than 128"),
        (MIXTURE, {"mlp_only_layers": 5}, "mlp_only_layers is 5, not a list of whole numbers"),
        (MIXTURE, {"num_experts": None}, "num_experts is missing"),
        (MIXTURE, {"moe_intermediate_size": None}, "moe_intermediate_size is missing"),
        (LATENT, {"moe_intermediate_size": None}, "moe_intermediate_size is missing"),
        (MIXTURE, {"n_routed_experts": 64}, "num_experts is 128 but n_routed_experts is 64"),
        (LATENT, {"kv_lora_rank": None}, "kv_lora_rank is missing"),
        (LATENT, {"moe_layer_freq": [2] * 6}, "moe_layer_freq holds 2, not 0 or 1"),
        (LATENT, {"num_key_value_heads": 8}, "num_key_value_heads is not the number of heads"),
    ],
)
def test_the_field_is_named(base, change, says):
    with pytest.raises(UnreadableModel, match=says):
        read_language_model({**base, **change})


@pytest.mark.parametrize("base", [LLAMA, MIXTURE, LATENT], ids=lambda c: c["model_type"])
def test_the_configurations_themselves_are_read(base):
    assert read_language_model(base).unread_fields == ()


@pytest.mark.parametrize("name", ["float8_e4m3fn", "torch.float8_e5m2", "int8", "float64"])
def test_formats_that_weights_are_stored_in_leave_the_computation_in_bf16(name):
    assert read_language_model({**LLAMA, "torch_dtype": name}).formats.head == "bf16"


def test_a_field_of_unknown_meaning_is_named_in_the_description():
    model = read_language_model({**LLAMA, "memory_layers": 3, "vision_start_token_id": 5})
    assert model.unread_fields == ("memory_layers",)


def test_a_name_that_no_text_can_hold_is_written_as_an_escape():
    model = read_language_model(json.dumps({**LLAMA, "\ud800": 3}).encode())
    assert model.unread_fields == ("\\ud800",)


def test_a_truncated_file_is_refused(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA)[:-30])
    with pytest.raises(UnreadableModel, match=r"Cannot read config\.json: not valid JSON"):
        read_language_model(path)


def test_a_field_given_twice_is_refused_where_its_values_differ():
    text = json.dumps(LLAMA)
    line = "'hidden_size' is given twice, as 64 and 4096"
    with pytest.raises(UnreadableModel, match=line):
        read_language_model(f'{{"hidden_size": 64, {text[1:]}'.encode())
    inner = '{"rope_scaling": {"factor": 2.0, "factor": 8.0}, ' + text[1:]
    with pytest.raises(UnreadableModel, match="'factor' is given twice"):
        read_language_model(inner.encode())
    same = f'{{"hidden_size": {LLAMA["hidden_size"]}, {text[1:]}'
    assert read_language_model(same.encode()) == read_language_model(LLAMA)


def test_what_is_no_object_or_not_there_is_refused(tmp_path):
    with pytest.raises(UnreadableModel, match="not an object"):
        read_language_model(b"[1, 2]")
    with pytest.raises(UnreadableModel, match="No such file"):
        read_language_model(tmp_path / "config.json")
    with pytest.raises(UnreadableModel, match="not valid JSON"):
        read_language_model(b"[" * 100_000)


def test_a_file_too_large_to_be_a_configuration_is_not_opened(tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    path.touch()
    with path.open("r+b") as file:
        file.truncate(10 * 2**30)  # sparse: takes no room on the disk
    monkeypatch.setattr(reader.json, "loads", pytest.fail)
    with pytest.raises(ModelTooLarge, match="10,737,418,240 bytes"):
        read_language_model(path)


def test_a_pipe_without_end_is_refused_without_reading_it_all():
    with pytest.raises(ModelTooLarge, match="over 16,777,216 bytes"):
        read_language_model(Path("/dev/zero"))


@pytest.mark.parametrize(
    "value",
    [10**5000, "x" * 10**6, [[[[[[[[1]]]]]]]] * 1000, {"a": 2} | LLAMA],
    ids=["digits", "text", "list", "object"],
)
def test_a_long_or_deep_value_is_said_in_a_short_line(value):
    with pytest.raises(UnreadableModel, match="hidden_size is ") as raised:
        read_language_model({**LLAMA, "hidden_size": value})
    assert len(str(raised.value)) < 200


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-2, 200), max_size=6),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@given(st.data())
def test_whatever_a_field_holds_the_answer_is_a_description_or_one_line(data):
    given_fields = copy.deepcopy(data.draw(st.sampled_from([LLAMA, MIXTURE, LATENT])))
    names = st.sampled_from([*given_fields, "layer_types", "moe_layer_freq", "vision_config"])
    for name in data.draw(st.lists(names, min_size=1, max_size=3)):
        given_fields[name] = data.draw(VALUES)
    try:
        model = read_language_model(given_fields)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert model.active_parameters() > 0
        assert model.weight_bytes() > 0
        assert model.cache_bytes(1000) >= 0


def test_a_field_that_is_nearly_another_is_named_with_it():
    config = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}
    found = read_language_model({**config, "num_keyvalue_heads": 8})
    assert found.misspelt_fields == ("num_keyvalue_heads (did you mean num_key_value_heads?)",)
    assert found.unread_fields == ("num_keyvalue_heads",)
    assert not read_language_model({**LLAMA, "num_keyvalue_heads": 8}).misspelt_fields
    assert not read_language_model({**LLAMA, "something_of_its_own": 8}).misspelt_fields


def test_scaled_positions_lengthen_the_context():
    most = read_language_model({**LLAMA, "max_position_embeddings": 32_768}).most_tokens
    assert most == 32_768
    assert read_language_model({**LLAMA, **SCALED}).most_tokens == 131_072
    original = {"factor": 40, "original_max_position_embeddings": 4096}
    scaled = {"max_position_embeddings": 163_840, "rope_scaling": original}
    assert read_language_model({**LLAMA, **scaled}).most_tokens == 163_840


@pytest.mark.parametrize("name", ["hidden_act", "activation_function"])
def test_an_activation_that_is_not_known_is_named(name):
    assert not read_language_model({**LLAMA, name: "silu"}).misspelt_fields
    found = read_language_model({**LLAMA, name: "gelu7"})
    assert found.misspelt_fields == (f"{name} 'gelu7' (did you mean gelu?)",)
    assert read_language_model({**LLAMA, name: "abc"}).misspelt_fields == (f"{name} 'abc'",)


# Real configurations with fields dropped, altered or replaced are read or refused by a field.


ANY = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 300),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from([10**4000, 1 << 24, -(1 << 70), math.inf, math.nan, "fp8", "4096", b"x"]),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
"""What JSON can hold, and what Python can besides."""
KNOWN = sorted({name for model in named_models() for name in named_config(model)})
"""Names of fields that some family has, for fields that do not belong."""


def places(node, path=()):
    """The objects in a configuration, as paths from its top."""
    yield path
    inner = node.items() if isinstance(node, dict) else enumerate(node[:3])
    for key, value in inner:
        if isinstance(value, dict | list) and value:
            yield from places(value, (*path, key))


def altered(value, draw):
    """A value that is near what stood there, or anything."""
    if isinstance(value, int) and not isinstance(value, bool) and draw(st.booleans()):
        return draw(st.sampled_from([-value, 0, value + 1, 2 * value, value / 3, str(value), 1]))
    if isinstance(value, list) and value and draw(st.booleans()):
        return draw(st.sampled_from([value[:-1], value + value[-1:], value[::-1], [value]]))
    if isinstance(value, str) and draw(st.booleans()):
        return draw(st.sampled_from([value[:-1], value.upper(), value + value, [value]]))
    return draw(ANY)


def mutate(config, draw):
    """Change one place of a configuration; the changed field's name."""
    path = draw(st.sampled_from(list(places(config))))
    node = config
    for key in path:
        node = node[key]
    if isinstance(node, list):
        at = draw(st.integers(0, len(node) - 1))
        node[at] = altered(node[at], draw)
        return
    kind = draw(st.sampled_from(["drop", "alter", "alter", "replace", "add"]))
    name = draw(st.sampled_from(KNOWN if kind == "add" or not node else sorted(node)))
    if kind == "drop":
        node.pop(name, None)
    elif kind == "alter" and name in node:
        node[name] = altered(node[name], draw)
    else:
        node[name] = draw(ANY)


@pytest.mark.slow
@given(st.data())
@settings(derandomize=True)
def test_a_changed_configuration_is_described_soundly_or_refused_by_a_field(data):
    config = named_config(data.draw(st.sampled_from(named_models())))
    config = copy.deepcopy(config)
    for _ in range(data.draw(st.integers(1, 3))):
        mutate(config, data.draw)
    try:
        model = read_language_model(config)
    except UnreadableModel as error:
        said = str(error)
        assert "\n" not in said
        assert len(said) < 2000
        assert said.startswith("Cannot read the configuration: ")
        said = said.removeprefix("Cannot read the configuration: ")
        field = said.split()[0].rpartition(".")[2]
        assert field.replace("_", "").replace("-", "").isalnum(), said
    else:
        sizes = (model.parameters(), model.active_parameters(), model.weight_bytes())
        assert all(math.isfinite(size) and size > 0 for size in sizes)
        assert model.active_parameters() <= model.parameters()
        assert 0 <= model.cache_bytes(100) <= model.cache_bytes(1000) < math.inf
