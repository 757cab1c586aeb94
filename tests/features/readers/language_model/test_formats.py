"""Formats that a caller names take the place of those of the file."""

from typing import get_args

import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.errors import UnreadableModel
from forerun.data.language_models.kernel import ProductFormat
from forerun.data.language_models.weights import BYTES
from forerun.data.number_formats import FORMATS, PRODUCTS, trained_in
from forerun.data.training_options import FrozenFormat
from forerun.data.workload import WeightFormat
from forerun.features.readers.language_model.quantization import with_formats
from forerun.features.readers.language_model.reader import named_language_model

LLAMA = named_language_model("llama-3.1-8b")
LAYERS = LLAMA.parameters() - 2 * LLAMA.table_parameters()


@pytest.mark.parametrize(
    ("asked", "name"),
    [("fp8", "fp8"), ("NVFP4", "nvfp4"), ("awq", "int4"), ("gptq", "int4"), ("int8", "int8")],
)
def test_a_name_converts_the_layers_and_leaves_embeddings_and_output_matrix(asked, name):
    changed = with_formats(LLAMA, weights=asked)
    kept = 2 * 2 * LLAMA.table_parameters()
    assert changed.weight_bytes() == kept + LAYERS * BYTES[name]
    assert changed.layers == LLAMA.layers


def test_every_product_has_operands_and_a_precision_of_the_wider_one():
    assert PRODUCTS.keys() == set(get_args(ProductFormat))
    precisions = {name: own.precision for name, own in PRODUCTS.items()}
    assert precisions["mxfp4"] == precisions["int4"] == "bf16"
    assert (precisions["mxfp4_mxfp8"], precisions["mxfp4_mxfp4"]) == ("fp8", "fp4")


def test_a_format_has_the_same_bytes_wherever_it_is_asked_for():
    assert set(get_args(WeightFormat)) | set(get_args(FrozenFormat)) <= FORMATS.keys()
    assert {name: FORMATS[name].bytes for name in BYTES} == BYTES
    assert FORMATS["mxfp4"].bytes == 0.53125


@pytest.mark.parametrize(
    ("name", "device", "precision"),
    [("mxfp4", "b200", "fp4"), ("mxfp4", "h100", "bf16"), ("bf16", "t4", "fp16")],
)
def test_products_are_in_the_best_precision_that_the_device_has(name, device, precision):
    assert FORMATS[name].precision_on(DeviceCatalog.load().get(device)) == precision


@pytest.mark.parametrize(
    ("name", "device", "precision"),
    [("bf16", "v100", "fp32"), ("fp16", "v100", "fp16"), ("mxfp8", "b200", "fp8")],
)
def test_training_runs_half_precision_at_the_fp32_rate_of_devices_without_it(
    name, device, precision
):
    """Narrower formats are refused there, as frameworks do."""
    assert trained_in(name, DeviceCatalog.load().get(device)) == precision


def test_keys_and_values_have_a_format_of_their_own():
    changed = with_formats(LLAMA, cache="fp8_e4m3")
    assert changed.cache_bytes(100) == LLAMA.cache_bytes(100) / 2
    assert changed.weight_bytes() == LLAMA.weight_bytes()
    assert with_formats(LLAMA, cache="auto") == LLAMA


def test_the_content_of_a_file_says_which_modules_are_converted():
    content = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["*self_attn*"]}}
    made = with_formats(LLAMA, weights=content).formats
    assert (made.of_layer(0).mixer, made.of_layer(0).dense, made.head) == ("bf16", "fp8", "bf16")


def test_what_the_caller_says_replaces_what_the_file_said():
    model = named_language_model("Qwen/Qwen3-32B-FP8")
    assert with_formats(model, weights="bf16").weight_bytes() == 2 * model.parameters()


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"weights": "fp3"}, "weights 'fp3' is not known; known are fp32"),
        ({"cache": "int3"}, "cache 'int3' is not known"),
        ({"weights": {"quant_algo": "X"}}, "quant_algo 'X' is not known"),
        ({"weights": {}}, "quant_method None is not known"),
        ({"weights": {"quantization": []}}, "quantization is .., not an object"),
    ],
)
def test_the_field_is_named(asked, says):
    with pytest.raises(UnreadableModel, match=says):
        with_formats(LLAMA, **asked)
