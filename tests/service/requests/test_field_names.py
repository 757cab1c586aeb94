"""Requests about deployed models take the names that users of inference engines write."""

import re

import pytest
from pydantic import ValidationError

from forerun.service.problems import unfit
from forerun.service.requests.field_names import ALSO, NEGATED, also
from forerun.service.schemas.llm.deployment import EngineIn, ParallelismIn
from forerun.service.schemas.serving import LlmEstimateIn
from tests.every import for_every

LENGTHS = {"input_tokens": 1024, "output_tokens": 256, "concurrency": 32}
OWN = {"model": {"name": "some-model"}, "device": "h100-sxm-80gb", **LENGTHS}
VALUES = {
    "device": "l40s",
    "device_count": 4,
    "input_tokens": 512,
    "output_tokens": 128,
    "concurrency": 7,
    "requests_per_s": 2.5,
    "model.quantization": "fp8",
    "model.cache_format": "fp8",
    "engine.name": "sglang",
    "engine.version": "0.5",
    "engine.chunked_prefill": False,
    "engine.memory_share": 0.8,
    "engine.block_tokens": 32,
}
"""Path of a field -> a value that is not its default; 2 for all others."""


def ask(**given):
    return LlmEstimateIn.model_validate(given)


def without(content, path):
    """The content, without another load where one is set."""
    left = {name: value for name, value in content.items() if name != path}
    if path == "requests_per_s":
        left.pop("concurrency")
    return left


def at(asked, path):
    for name in path.split("."):
        asked = getattr(asked, name)
    return asked


@for_every("path, name", [(path, name) for path, names in ALSO.items() for name in names])
def test_every_further_name_sets_its_field(path, name):
    value = VALUES.get(path, 2)
    needed = {"draft_acceptance": 0.5} if path == "engine.draft_tokens" else {}
    engine = {"engine": needed} if needed else {}
    asked = ask(**without(OWN, path), **engine, **{name: value})
    assert at(asked, path) == value
    part, _, field = path.rpartition(".")
    if part in ("engine", "parallelism"):
        within = {"engine": EngineIn, "parallelism": ParallelismIn}[part]
        assert getattr(within.model_validate({name: value, **needed}), field) == value


@pytest.mark.parametrize("name", NEGATED)
def test_a_switch_that_is_the_opposite_is_turned_round(name):
    assert ask(**OWN, **{name: True}).engine.graphs is False
    assert ask(**OWN, **{name: False}).engine.graphs is True


def test_every_field_says_how_else_it_is_written():
    schema = LlmEstimateIn.model_json_schema()
    parts = {"engine": "EngineIn", "parallelism": "ParallelismIn", "model": "LlmIn"}
    for path in ALSO:
        part, _, field = path.rpartition(".")
        holder = schema["$defs"][parts[part]] if part else schema
        if path not in ("device", "model.quantization"):
            assert also(path) in holder["properties"][field]["description"]


def test_equal_values_of_one_field_may_be_given_twice():
    asked = ask(**OWN, tp=2, tensor_parallel_size=2, parallelism={"tensor": 2, "pp": 4})
    assert (asked.parallelism.tensor, asked.parallelism.pipeline) == (2, 4)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"tp": 2, "tp_size": 4}, ("tp", "tp_size")),
        ({"tp": 2, "parallelism": {"tensor": 4}}, ("tp", "parallelism.tensor")),
        ({"max_num_seqs": 8, "engine": {"max_num_seqs": 4}}, ("engine.max_num_seqs", "8")),
        ({"isl": 1}, ("isl", "input_tokens")),
        ({"enforce_eager": True, "engine": {"graphs": True}}, ("enforce_eager", "engine.graphs")),
        ({"kv_cache_dtype": "fp8", "model": {"cache_format": "fp16"}}, ("fp8", "fp16")),
    ],
)  # fmt: skip
def test_two_values_of_one_field_are_refused_with_both_names(given, names):
    with pytest.raises(ValidationError) as error:
        ask(**OWN | given)
    assert all(name in str(error.value) for name in names)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"parallelism": {"workers": 2}}, "is no field of parallelism; it belongs next to"),
        ({"engine": {"tp": 2}}, "is no field of engine; it belongs next to engine"),
        ({"prefill": {"parallelism": {"workers": 2}}}, "it belongs next to parallelism"),
        ({"engine": {"tensor": 2}}, "is no field here; did you mean parallelism.tensor or"),
        ({"prefill_workers": 2}, "is no field here; did you mean prefill.workers?"),
        ({"prefill_tensor": 2}, "is no field here; did you mean prefill.parallelism.tensor?"),
        ({"tensor": 2}, "is no field here; did you mean parallelism.tensor"),
        ({"name": "llama"}, "is no field here; did you mean engine.name or model.name?"),
        ({"model": {"model_type": "llama", "hidden_size": 4096}}, "belongs in model.config"),
        ({"device": ["h100-sxm-80gb", "l4"]}, "one device is taken here"),
        ({"max_num_seq": 4}, "did you mean max_num_seqs"),
        ({"engine": {"max_sequence": 4}}, "did you mean max_sequences"),
        ({"colour": "red"}, "Extra inputs"),
    ],
)
def test_what_is_no_field_is_said_with_where_it_belongs_or_a_similar_one(given, why):
    with pytest.raises(ValidationError, match=re.escape(why)):
        ask(**OWN | given)


def test_the_name_of_a_model_or_an_engine_may_stand_alone():
    asked = ask(**OWN | {"model": "llama", "engine": "TensorRT-LLM"})
    assert (asked.model.name, asked.engine.name) == ("llama", "trtllm")


def test_a_cache_in_the_configurations_format_is_one_that_is_not_named():
    asked = [ask(**OWN, kv_cache_dtype=name) for name in ("auto", "fp8_e4m3", "bfloat16")]
    assert [one.model.cache_format for one in asked] == [None, "fp8", "bf16"]


def fault(**content):
    with pytest.raises(ValidationError) as raised:
        LlmEstimateIn.model_validate({"model": "llama-3.1-8b", "device": "h100", **content})
    return unfit(raised.value.errors()).detail


def test_a_field_that_does_not_exist_is_named_with_one_that_does():
    line = fault(model={"name": "llama-3.1-8b", "quantisation": "fp8"})
    assert "'quantisation' is no field; did you mean quantization?" in line
    assert "Extra inputs" not in line


@pytest.mark.parametrize("name", ["qqqqqqqq", "rate"])  # answers have a date
def test_where_no_name_of_a_request_is_like_it_none_is_suggested(name):
    line = fault(model={"name": "llama-3.1-8b", name: 1})
    assert f"'{name}' is no field (given 1)" in line


def test_no_word_of_the_library_is_in_front():
    line = fault(input_tokens=1, output_tokens=1, concurrency=1, requests_per_s=1)
    assert "Value error" not in line
    assert not line.startswith(":")
    assert "give one of concurrency and requests_per_s" in line


def test_a_field_of_another_request_is_not_suggested_for_itself():
    line = fault(model={"name": "llama-3.1-8b", "operator": 1})
    assert "did you mean operator?" not in line
