"""Number formats of a language model's weights, by part and layer.

Bytes of a weight include the scales that are stored for each group of weights: one of 8 bits for
16 weights in NVFP4 and for 32 in MXFP4 and MXFP8, one of 16 bits for 32 integers. The scales of
blockwise FP8, one for 128 x 128 weights, are not counted. Those of GGUF files are means over all
weights of Llama 2 7B, as llama.cpp lists them (`tools/quantize/README.md`), or follow from blocks
of 32 weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Final

GGUF: Final[Mapping[str, float]] = MappingProxyType(
    {
        **{"q2_k": 3.35, "q3_k_s": 3.50, "q3_k_m": 3.91, "q3_k_l": 4.27, "q4_0": 4.5},
        **{"q4_k_s": 4.58, "q4_k_m": 4.84, "q4_1": 5.0, "q5_0": 5.5, "q5_k_s": 5.52},
        **{"q5_k_m": 5.68, "q5_1": 6.0, "q6_k": 6.56, "q8_0": 8.5},
    }
)
"""Bits of one weight in a format of GGUF files, which holds for all matrices of a model."""
BYTES: Final[Mapping[str, float]] = MappingProxyType(
    {
        "fp32": 4.0,
        "bf16": 2.0,
        "fp16": 2.0,
        "fp8": 1.0,
        "int8": 1.0,
        "mxfp8": 1.0 + 1 / 32,
        "nvfp4": 0.5 + 1 / 16,
        "mxfp4": 0.5 + 1 / 32,
        "int4": 0.5 + 2 / 32,
        **{name: bits / 8 for name, bits in GGUF.items()},
    }
)
"""Bytes of one weight in a number format."""


@dataclass(frozen=True, slots=True)
class LayerFormats:
    """Number formats of the matrices of one layer, keys of `BYTES`.

    Attributes:
        mixer: attention, or what stands in its place.
        dense: a dense feed-forward network.
        shared: shared experts.
        experts: routed experts.
    """

    mixer: str = "bf16"
    dense: str = "bf16"
    shared: str = "bf16"
    experts: str = "bf16"

    @classmethod
    def all_in(cls, name: str) -> "LayerFormats":
        """All matrices in one format."""
        return cls(**{part.name: name for part in fields(cls)})


@dataclass(frozen=True, slots=True)
class WeightFormats:
    """Number formats of all weights, and of what is kept of each sequence.

    Attributes:
        unquantized: format of what is not quantised, embeddings and routers among it.
        head: format of the output matrix.
        cache: format of keys and values.
        state: format of the state of recurrent layers.
        layers: formats of each layer; empty where all are in `unquantized`.
    """

    unquantized: str = "bf16"
    head: str = "bf16"
    cache: str = "bf16"
    state: str = "fp32"
    layers: tuple[LayerFormats, ...] = field(default=())

    def of_layer(self, number: int) -> LayerFormats:
        """Formats of one layer, counted from 0."""
        return self.layers[number] if self.layers else LayerFormats.all_in(self.unquantized)
