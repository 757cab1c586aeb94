"""Operators of one forward pass: bytes that a device reads, arithmetic, and messages to others.

Layers that are alike are counted once. Everything here is of one device of a worker; tokens and
sequences are those of one data-parallel rank.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device, Precision
from forerun.data.language_models.attention import Attention, CompressedAttention, LatentAttention
from forerun.data.language_models.feed_forward import Dense, Experts
from forerun.data.language_models.model import LanguageModel, Layer, Mixer
from forerun.data.language_models.recurrent import Recurrent
from forerun.data.language_models.weights import BYTES, LayerFormats
from forerun.data.number_formats import FORMATS
from forerun.features.operators.roofline import PCIE_GBS

ARITHMETIC: Final[Mapping[str, tuple[Precision, ...]]] = MappingProxyType(
    {name: own.precisions for name, own in FORMATS.items()}
)
"""Format of weights -> precisions that products are computed in, best first."""
SELECTED_TOKENS: Final = 2048
"""Tokens that an indexer selects for attention, as in DeepSeek-V3.2."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """Figures of a device's spec sheet in base units.

    Attributes:
        device: the device.
        bandwidth: bytes/s from memory.
        link: bytes/s to another device, one direction.
        switched: whether the link is faster than PCIe.
    """

    device: Device
    bandwidth: float
    link: float
    switched: bool

    @classmethod
    def of(cls, device: Device) -> Self:
        """The sheet of a device; a link that is not known is PCIe 4.0 with 16 lanes.

        Raises:
            UnknownBandwidth: the device has no spec sheet.
        """
        link = device.interconnect_gbs or 64.0
        return cls(device, device.bandwidth_gbs * 1e9, link * 1e9 / 2.0, link > PCIE_GBS)

    def precision(self, number_format: str) -> Precision:
        """Precision that products with weights in a format are computed in.

        Raises:
            UnknownPrecision: the sheet has no peak that could stand in.
        """
        for candidate in ARITHMETIC[number_format]:
            if candidate in self.device.peak_tflops:
                return candidate
        return self.device.computes_in(ARITHMETIC[number_format][-1])

    def arithmetic(self, number_format: str) -> float:
        """Peak of products with weights in a format, FLOP/s; raises as `precision`."""
        return self.device.peak(self.precision(number_format), matrix=True) * 1e12

    def substitutes(self, model: LanguageModel) -> tuple[str, ...]:
        """A line for each format of the model's weights without a peak on the sheet."""
        used = {form for _, forms in layer_counts(model) for form in _formats(forms)}
        lines = []
        for form in sorted(used & ARITHMETIC.keys()):
            first, found = ARITHMETIC[form][0], self.precision(form)
            if found != first:
                lines.append(substituted(form, first, found))
        return tuple(lines)


def substituted(form: str, first: str, found: str) -> str:
    """That products with weights in a format are computed in another precision than its own."""
    return f"{form} weights: no {first} peak on the sheet, so products in {found}"


def _formats(forms: LayerFormats) -> tuple[str, ...]:
    return forms.mixer, forms.dense, forms.shared, forms.experts


@lru_cache(maxsize=256)
def layer_counts(model: LanguageModel) -> Mapping[tuple[Layer, LayerFormats], int]:
    """Each distinct layer with its formats -> how many layers of the model are like it."""
    layers = enumerate(model.layers)
    return MappingProxyType(Counter((one, model.formats.of_layer(i)) for i, one in layers))


@lru_cache(maxsize=256)
def parameter_counts(model: LanguageModel) -> tuple[int, int]:
    """Number of weights of a model, and of those that one token is multiplied with."""
    return model.parameters(), model.active_parameters()


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one kind of operator in n iterations.

    Attributes:
        read: (n,) bytes from memory.
        flop: (n,) floating-point operations.
        peak: FLOP/s that they run at.
    """

    read: Column
    flop: Column
    peak: float

    def seconds(self, bandwidth: float, share: float, overlap: float = np.inf) -> Column:
        """Time of reading and arithmetic together, shape (n,).

        Args:
            bandwidth: bytes/s that are reached.
            share: share of the peak that is reached, 0 to 1.
            overlap: order of the norm that joins both; infinite for the longer of the two.
        """
        read, flop = self.read / bandwidth, self.flop / (self.peak * share)
        longer, shorter = np.maximum(read, flop), np.minimum(read, flop)
        if overlap == np.inf:
            return longer
        ratio = shorter / np.maximum(longer, np.finfo(np.float64).tiny)
        return np.asarray(longer * (1.0 + ratio**overlap) ** (1.0 / overlap))


def product(weights: float, number_format: str, tokens: Column, sheet: Sheet) -> Work:
    """Product of n batches of tokens with a matrix of that many weights."""
    read = np.full_like(tokens, weights * BYTES[number_format])
    return Work(read, 2.0 * weights * tokens, sheet.arithmetic(number_format))


def routed(part: Experts, hidden: int, number_format: str, tokens: Column, sheet: Sheet) -> Work:
    """Routed experts, where tokens choose experts independently and evenly.

    Args:
        part: the layer's experts.
        hidden: width of the model.
        number_format: format of the experts' weights.
        tokens: (n,) tokens of all ranks.
        sheet: figures of the device.
    """
    weights = part.expert(hidden)
    reached = -np.expm1(tokens * np.log1p(-min(part.per_token / part.experts, 1.0 - 1e-9)))
    read = part.experts * weights * BYTES[number_format] * reached
    flop = 2.0 * weights * part.per_token * tokens
    return Work(read, flop, sheet.arithmetic(number_format))


def attended(mixer: Mixer, context: Column) -> Column:
    """Tokens that one token attends to where n contexts have that mean length, shape (n,)."""
    match mixer:
        case Attention():
            return context if mixer.window is None else np.minimum(context, mixer.window)
        case LatentAttention():
            return np.minimum(context, SELECTED_TOKENS) if mixer.index_heads else context
        case CompressedAttention():
            blocks = context / mixer.block_tokens if mixer.block_tokens else 0.0 * context
            selected = np.minimum(blocks, SELECTED_TOKENS) if mixer.index_heads else blocks
            return np.minimum(context, mixer.window) + selected
        case Recurrent():
            return np.zeros_like(context)


def pair_flop(mixer: Mixer, *, decode: bool) -> float:
    """Floating-point operations for one token and one token that it attends to, all heads.

    Args:
        mixer: what exchanges information between tokens.
        decode: whether latent attention works on the vectors in the cache, without unfolding them.
    """
    match mixer:
        case Attention():
            return 2.0 * mixer.query_heads * (mixer.head_dim + mixer.value_head_dim)
        case LatentAttention() if decode:
            return 2.0 * mixer.query_heads * (2 * mixer.key_value_rank + mixer.rotary_dim)
        case LatentAttention():
            widths = mixer.plain_dim + mixer.rotary_dim + mixer.value_head_dim
            return 2.0 * mixer.query_heads * widths
        case CompressedAttention():
            return 4.0 * mixer.query_heads * mixer.head_dim
        case Recurrent():
            return 0.0


def state_values(mixer: Mixer) -> int:
    """Number of values in the state of a recurrent layer, which each token reads and writes."""
    match mixer:
        case Recurrent():
            return mixer.cached(1)
        case Attention() | LatentAttention() | CompressedAttention():
            return 0


def cache_values(mixer: Mixer, context: Column) -> Column:
    """Values that one decoded token reads from the cache of its sequence, shape (n,).

    Args:
        mixer: what exchanges information between tokens.
        context: (n,) mean length of the sequences.
    """
    match mixer:
        case Attention():
            index = mixer.index_dim if mixer.index_heads else 0
            token = mixer.key_value_heads * (mixer.head_dim + mixer.value_head_dim)
            return attended(mixer, context) * (token + index)
        case LatentAttention():
            index = mixer.index_dim if mixer.index_heads and mixer.own_indexer else 0
            return attended(mixer, context) * (mixer.key_value_rank + mixer.rotary_dim) + (
                context * index
            )
        case CompressedAttention():
            index = mixer.index_dim if mixer.index_heads and mixer.block_tokens else 0
            blocks = context / max(mixer.block_tokens, 1)
            return attended(mixer, context) * mixer.head_dim + blocks * index
        case Recurrent():
            return np.zeros_like(context)


def cache_divided(mixer: Mixer, tensor: int) -> int:
    """Devices that the cache of a layer is divided over; the others have copies."""
    match mixer:
        case Attention():
            return min(tensor, mixer.key_value_heads)
        case LatentAttention() | CompressedAttention():
            return 1
        case Recurrent():
            return tensor


def dense_weights(layer: Layer, hidden: int) -> int:
    """Number of weights of the layer's dense networks."""
    return sum(part.parameters(hidden) for part in layer.feed_forward if isinstance(part, Dense))


def kernels(layer: Layer) -> int:
    """About how many kernels one layer launches."""
    found = 0
    match layer.mixer:
        case Attention():
            found += 5
        case LatentAttention() | CompressedAttention():
            found += 10
        case Recurrent():
            found += 8
    for part in layer.feed_forward:
        found += 8 if isinstance(part, Experts) else 4
    return found
