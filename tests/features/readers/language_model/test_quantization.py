"""Number formats of weights follow what the quantisation block converts and keeps."""

import pytest

from forerun.data.errors import UnreadableModel
from forerun.features.readers.language_model.reader import read_language_model
from tests.features.readers.language_model.test_bad_configurations import LATENT, LLAMA, MIXTURE

GROUP = {"weights": {"num_bits": 4, "type": "float", "group_size": 16}, "targets": ["Linear"]}


def formats(base, block, apart=None):
    return read_language_model({**base, "quantization_config": block}, apart).formats


def test_without_a_block_all_is_in_the_published_format():
    assert read_language_model({**LLAMA, "torch_dtype": "float16"}).formats.of_layer(0).mixer == (
        "fp16"
    )


def test_blockwise_fp8_converts_all_layers_but_not_the_output_matrix():
    made = formats(LATENT, {"quant_method": "fp8", "weight_block_size": [128, 128]})
    assert {made.of_layer(n).experts for n in range(6)} == {"fp8"}
    assert made.of_layer(0).mixer == "fp8"
    assert (made.head, made.cache) == ("bf16", "bf16")


def test_what_the_block_keeps_stays_in_the_published_format():
    kept = ["model.layers.1.self_attn*", "re:.*mlp\\.shared_experts.*", "lm_head"]
    block = {"quant_method": "modelopt", "config_groups": {"group_0": GROUP}, "ignore": kept}
    made = formats(LATENT, block)
    assert made.of_layer(0).mixer == "nvfp4"
    assert made.of_layer(1).mixer == "bf16"
    assert made.of_layer(1).experts == "nvfp4"
    assert {made.of_layer(n).shared for n in range(6)} == {"bf16"}


def test_a_number_of_a_layer_is_not_a_prefix_of_another():
    block = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.layers.1.*"]}
    made = formats({**LLAMA, "num_hidden_layers": 20}, block)
    assert made.of_layer(1).mixer == "bf16"
    assert made.of_layer(10).mixer == "nvfp4"


def test_mxfp4_of_gpt_oss_converts_experts_alone():
    made = formats({**MIXTURE, "model_type": "gpt_oss"}, {"quant_method": "mxfp4"})
    assert (made.of_layer(0).experts, made.of_layer(0).mixer) == ("mxfp4", "bf16")


def test_a_list_of_modules_gives_each_its_format():
    listed = {
        "model.language_model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.language_model.layers.0.mlp.experts": {"quant_algo": "NVFP4"},
        "lm_head": {"quant_algo": "FP8"},
    }
    block = {"quant_algo": "MIXED_PRECISION", "quantized_layers": listed}
    made = formats(MIXTURE, block)
    assert (made.of_layer(0).mixer, made.of_layer(0).experts) == ("fp8", "nvfp4")
    assert (made.of_layer(1).mixer, made.of_layer(1).experts) == ("bf16", "bf16")
    assert made.head == "fp8"


@pytest.mark.parametrize("scheme", ["FP8", {"num_bits": 8, "type": "float"}])
def test_keys_and_values_have_a_format_of_their_own(scheme):
    made = formats(LLAMA, {"quant_algo": "FP8", "kv_cache_scheme": scheme})
    assert made.cache == "fp8"


def test_a_separate_file_says_the_same():
    apart = b'{"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}'
    made = read_language_model(LLAMA, apart).formats
    assert (made.of_layer(3).dense, made.cache) == ("fp8", "fp8")


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ({"ignore": 5}, "ignore is 5, not a list of texts"),
        ({"ignore": [None]}, "not a list of texts"),
        ({"modules_to_not_convert": ["re:("]}, r"holds the regular expression '\('"),
        ({"ignore": [r"re:([\w.]+)+!"]}, "which is not supported"),
        ({"ignore": ["re:.*.*.*.*.*x"]}, "which is not supported"),
        ({"exclude_modules": ["a*"] * 2_001}, "holds over 2,000 patterns"),
        ({"quantized_layers": [1]}, "not an object"),
    ],
)
def test_lists_of_modules_that_are_none_or_could_take_hours_are_refused(block, says):
    with pytest.raises(UnreadableModel, match=says):
        formats(LLAMA, {"quant_method": "fp8"} | block)


WIDE = {"weights": {"num_bits": 8, "type": "float"}}


def test_groups_of_different_formats_convert_what_their_targets_name():
    narrow = {**GROUP, "targets": ["re:.*mlp.*"]}
    attention = {**WIDE, "targets": ["re:.*self_attn.*"]}
    for groups in (
        {"0": narrow, "1": attention},
        {"0": narrow, "1": {**WIDE, "targets": ["Linear"]}},
    ):
        made = formats(LLAMA, {"quant_method": "compressed-tensors", "config_groups": groups})
        assert (made.of_layer(0).mixer, made.of_layer(0).dense) == ("fp8", "nvfp4")
    made = formats(LLAMA, {"quant_method": "compressed-tensors", "config_groups": {"0": narrow}})
    assert (made.of_layer(0).mixer, made.of_layer(0).dense) == ("bf16", "nvfp4")


@pytest.mark.parametrize("targets", [["Linear"], None, [3], 3, [""], []])
def test_groups_that_contradict_each_other_or_name_nothing_are_refused(targets):
    groups = {"0": GROUP, "1": {**WIDE, "targets": targets}}
    with pytest.raises(UnreadableModel, match="config_groups"):
        formats(LLAMA, {"quant_method": "modelopt", "config_groups": groups})


def test_auto_round_keeps_or_widens_the_modules_that_it_names():
    extra = {
        "model.layers.1.mlp.down_proj": {"bits": 8},
        "model.layers.1.self_attn.q_proj": {"bits": 16},
    }
    block = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": extra}
    made = formats(LLAMA, block)
    assert (made.of_layer(0).mixer, made.of_layer(0).dense) == ("int4", "int4")
    assert (made.of_layer(1).mixer, made.of_layer(1).dense) == ("bf16", "int8")
    half = formats({**LLAMA, "torch_dtype": "float16"}, block)
    assert half.of_layer(1).mixer == "fp16"
    with pytest.raises(UnreadableModel, match=r"extra_config.*holds bits 5"):
        formats(LLAMA, {**block, "extra_config": {"lm_head": {"bits": 5}}})


def test_a_mixture_of_formats_without_its_list_is_refused():
    with pytest.raises(UnreadableModel, match="quantized_layers is missing"):
        formats(LLAMA, {"quant_algo": "MIXED_PRECISION"})


@pytest.mark.parametrize(
    ("weights", "name"),
    [
        ({"type": "float", "num_bits": 8}, "fp8"),
        ({"type": "float", "num_bits": 8, "group_size": 32}, "mxfp8"),
        ({"type": "float", "num_bits": 4, "group_size": 32}, "mxfp4"),
        ({"type": "int", "num_bits": 4, "group_size": 128}, "int4"),
        ({"type": "int", "num_bits": 8}, "int8"),
    ],
)
def test_compressed_tensors_name_bits_and_groups(weights, name):
    made = formats(
        LLAMA, {"quant_method": "compressed-tensors", "config_groups": {"0": {"weights": weights}}}
    )
    assert made.of_layer(0).dense == name


@pytest.mark.parametrize(
    ("block", "name"),
    [
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
    ],
)
def test_methods_of_weights_alone_are_known(block, name):
    assert formats(LLAMA, block).of_layer(0).dense == name
