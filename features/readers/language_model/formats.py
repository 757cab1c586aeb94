"""A description with weights, or keys and values, in other number formats than its file says."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from forerun.data.errors import UnreadableModel
from forerun.data.language_models.model import LanguageModel
from forerun.data.language_models.weights import BYTES, GGUF, LayerFormats
from forerun.features.readers.language_model.fields import Fields, short
from forerun.features.readers.language_model.quantization import formats_of

WEIGHTS: Final[Mapping[str, str]] = {
    **{name: name for name in BYTES},
    **{"awq": "int4", "gptq": "int4", "bitsandbytes": "int4", "nf4": "int4"},
    **{"w4a16": "int4", "w8a16": "int8", "w8a8": "int8", "fp4": "nvfp4", "half": "fp16"},
    **{"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"},
    **{"f16": "fp16", "f32": "fp32"},
}
"""Name of a number format, or of a method of quantisation -> format of the weights."""
BLOCK: Final = 256
"""Weights of a block of the formats of GGUF files with `k` in their name."""
OF_BLOCKS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("q2_k", "q3_k_s", "q3_k_m", "q3_k_l"), "q4_0"),
    **{"q4_k_s": "q5_0", "q4_k_m": "q5_1", "q5_k_s": "q5_1", "q5_k_m": "q5_1", "q6_k": "q8_0"},
}
"""Such a format -> that of blocks of 32 which is nearest to what llama.cpp stores where a width is
no multiple of `BLOCK`."""
CACHE: Final[Mapping[str, str]] = {
    **{name: name for name in ("fp32", "bf16", "fp16", "fp8", "int8", "nvfp4")},
    **{"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "half": "fp16"},
    **{"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"},
}
"""Name of a number format -> format of keys and values."""


def with_formats(
    model: LanguageModel,
    *,
    weights: str | Mapping[str, Any] | None = None,
    cache: str | None = None,
) -> LanguageModel:
    """The same layers in other number formats.

    Args:
        model: the description.
        weights: a name such as `fp8`, `nvfp4`, `int4`, `awq`, for the matrices of all layers, while
            embeddings, output matrix and routers stay, which a format of GGUF files such as
            `q4_k_m` converts too; or the content of `hf_quant_config.json`,
            which says which modules are converted; None for those of the description.
        cache: name of the format of keys and values; None or `auto` for that of the description.

    Raises:
        UnreadableModel: a name is not known, or the content is not understood; it names the field.
    """
    formats = model.formats
    if isinstance(weights, str):
        name = _known(weights, WEIGHTS, "weights")
        if name in OF_BLOCKS and model.hidden_size % BLOCK:
            name = OF_BLOCKS[name]
        layers = (LayerFormats.all_in(name),) * len(model.layers)
        formats = replace(formats, layers=layers)
        if name in GGUF:
            formats = replace(formats, unquantized=name, head=name)
    elif weights is not None:
        whole = Fields("the quantisation", weights)
        formats = formats_of(
            None,
            whole.part("quantization") or whole,
            unquantized=formats.unquantized,
            decoder=None,
            family=model.family,
            layers=len(model.layers),
        )
    if cache is not None and cache.lower() != "auto":
        formats = replace(formats, cache=_known(cache, CACHE, "cache"))
    return replace(model, formats=formats)


def _known(name: str, known: Mapping[str, str], field: str) -> str:
    if name.lower() not in known:
        raise UnreadableModel(
            "the quantisation", f"{field} {short(name)} is not known; known are {', '.join(known)}."
        )
    return known[name.lower()]
