"""Number formats of a language model's weights, by part and layer."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from forerun.data.number_formats import FORMATS

BYTES: Final[Mapping[str, float]] = {
    name: form.bytes for name, form in FORMATS.items() if name not in ("tf32", "nf4")
}
"""Bytes per weight of the number formats in configurations. TF32 is stored as FP32, and NF4 counts
as INT4."""


@dataclass(frozen=True, slots=True)
class LayerFormats:
    """Number formats of the matrices of one layer, keys of `BYTES`.

    Attributes:
        mixer: attention or recurrent layer.
        dense: dense feed-forward network.
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
    """Number formats of all weights, and of caches and states.

    Attributes:
        unquantized: format of everything not quantised, such as embeddings and routers.
        head: format of the output matrix.
        cache: format of keys and values.
        state: format of recurrent states.
        layers: formats of each layer; empty if all are in `unquantized`.
    """

    unquantized: str = "bf16"
    head: str = "bf16"
    cache: str = "bf16"
    state: str = "fp32"
    layers: tuple[LayerFormats, ...] = field(default=())

    def of_layer(self, number: int) -> LayerFormats:
        """Formats of one layer, counted from 0."""
        return self.layers[number] if self.layers else LayerFormats.all_in(self.unquantized)
