"""Operators of a forward pass: the bytes that one device reads and the FLOPs that it computes.

Identical layers are grouped. All figures are per device of a worker; tokens and sequences are those
of one data-parallel rank.
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
from forerun.data.number_formats import FORMATS, GGUF
from forerun.features.operators.roofline import PCIE_GBS

ARITHMETIC: Final[Mapping[str, tuple[Precision, ...]]] = MappingProxyType(
    {name: own.precisions for name, own in FORMATS.items()}
)
"""Weight format -> precisions that matrix products can be computed in, best first."""
SLOW_GGUF: Final = frozenset({"vllm", "sglang"})
"""Engines whose kernels for GGUF files use no matrix units (vLLM, csrc/quantization/gguf)."""
GGUF_SHARE: Final = 0.4
"""Their peak rate over that of FP32. With it, products with prompts reach a third of the FP32 rate;
22 % were measured on an RTX 3090 (dphnAI/sonar #1395) and 47 % on an RTX 4060 Ti
(vllm-project/vllm #35987)."""
SELECTED_TOKENS: Final = 2048
"""Tokens that an indexer selects for attention, as in DeepSeek-V3.2."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """Figures of a device's spec sheet in base units.

    Attributes:
        device: the device.
        bandwidth: memory bandwidth, bytes/s.
        link: link bandwidth to another device in one direction, bytes/s.
        switched: whether the link is faster than PCIe.
        slow_gguf: whether products with weights of GGUF files use no matrix units.
    """

    device: Device
    bandwidth: float
    link: float
    switched: bool
    slow_gguf: bool = False

    @classmethod
    def of(cls, device: Device, engine: str = "") -> Self:
        """The sheet of a device; an unknown link is assumed to be PCIe 4.0 x16.

        Args:
            device: the device.
            engine: name of the inference engine, if known.

        Raises:
            UnknownBandwidth: the device has no spec sheet.
        """
        link = device.interconnect_gbs or 64.0
        bandwidth = device.bandwidth_gbs * 1e9
        return cls(device, bandwidth, link * 1e9 / 2.0, link > PCIE_GBS, engine in SLOW_GGUF)

    def precision(self, number_format: str) -> Precision:
        """Precision in which products with weights of a format are computed.

        Raises:
            UnknownPrecision: the sheet has no peak for any suitable precision.
        """
        for candidate in ARITHMETIC[number_format]:
            if candidate in self.device.peak_tflops:
                return candidate
        return self.device.computes_in(ARITHMETIC[number_format][-1])

    def arithmetic(self, number_format: str) -> float:
        """Peak rate of products with weights of a format, FLOP/s; raises like `precision`."""
        if self.slow_gguf and number_format in GGUF:
            return GGUF_SHARE * self.device.peak("fp32") * 1e12
        return self.device.peak(self.precision(number_format), matrix=True) * 1e12

    def substitutes(self, model: LanguageModel) -> tuple[str, ...]:
        """A line for each weight format of the model whose own precision has no peak."""
        used = {form for _, forms in layer_counts(model) for form in _formats(forms)}
        lines = []
        for form in sorted(used & ARITHMETIC.keys()):
            first, used_precision = ARITHMETIC[form][0], self.precision(form)
            if used_precision != first:
                lines.append(substituted(form, first, used_precision))
        return tuple(lines)


def substituted(form: str, first: str, found: str) -> str:
    """The line saying that products with a weight format are computed in another precision."""
    return f"{form} weights: no {first} peak on the sheet, so products in {found}"


def _formats(forms: LayerFormats) -> tuple[str, ...]:
    return forms.mixer, forms.dense, forms.shared, forms.experts


@lru_cache(maxsize=256)
def layer_counts(model: LanguageModel) -> Mapping[tuple[Layer, LayerFormats], int]:
    """Distinct layer and its formats -> how often it occurs in the model."""
    layers = enumerate(model.layers)
    return MappingProxyType(Counter((one, model.formats.of_layer(i)) for i, one in layers))


@lru_cache(maxsize=256)
def parameter_counts(model: LanguageModel) -> tuple[int, int]:
    """Total and active parameters of a model."""
    return model.parameters(), model.active_parameters()


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one kind of operator in n iterations.

    Attributes:
        read: (n,) bytes from memory.
        flop: (n,) floating-point operations.
        peak: peak rate at which they run, FLOP/s.
    """

    read: Column
    flop: Column
    peak: float

    def seconds(self, bandwidth: float, share: float, overlap: float = np.inf) -> Column:
        """Time of reads and arithmetic combined, shape (n,), seconds.

        Args:
            bandwidth: achieved bandwidth, bytes/s.
            share: achieved share of the peak rate, 0 to 1.
            overlap: order p of the p-norm that combines the two times; infinite takes the longer.
        """
        read, flop = self.read / bandwidth, self.flop / (self.peak * share)
        longer, shorter = np.maximum(read, flop), np.minimum(read, flop)
        if overlap == np.inf:
            return longer
        ratio = shorter / np.maximum(longer, np.finfo(np.float64).tiny)
        return np.asarray(longer * (1.0 + ratio**overlap) ** (1.0 / overlap))


def product(weights: float, number_format: str, tokens: Column, sheet: Sheet) -> Work:
    """Work of multiplying n batches of tokens with a matrix of `weights` weights."""
    read = np.full_like(tokens, weights * BYTES[number_format])
    return Work(read, 2.0 * weights * tokens, sheet.arithmetic(number_format))


def routed(part: Experts, hidden: int, number_format: str, tokens: Column, sheet: Sheet) -> Work:
    """Work of routed experts, assuming that tokens choose experts independently and uniformly.

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
    """Tokens that one token attends to, given n mean context lengths, shape (n,)."""
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
    """FLOPs per pair of a token and a token that it attends to, over all heads.

    Args:
        mixer: attention or recurrent layer.
        decode: whether latent attention works on the cached vectors without expanding them.
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
    """Size of a recurrent layer's state, values; each token reads and writes all of them."""
    match mixer:
        case Recurrent():
            return mixer.cached(1)
        case Attention() | LatentAttention() | CompressedAttention():
            return 0


def cache_values(mixer: Mixer, context: Column) -> Column:
    """Values that decoding one token reads from the cache of its sequence, shape (n,).

    Args:
        mixer: attention or recurrent layer.
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
    """Devices that a layer's cache is divided over; further devices hold copies."""
    match mixer:
        case Attention():
            return min(tensor, mixer.key_value_heads)
        case LatentAttention() | CompressedAttention():
            return 1
        case Recurrent():
            return tensor


def dense_weights(layer: Layer, hidden: int) -> int:
    """Number of weights of a layer's dense networks."""
    return sum(part.parameters(hidden) for part in layer.feed_forward if isinstance(part, Dense))


def kernels(layer: Layer) -> int:
    """Approximate number of kernels that one layer launches."""
    count = 0
    match layer.mixer:
        case Attention():
            count += 5
        case LatentAttention() | CompressedAttention():
            count += 10
        case Recurrent():
            count += 8
    for part in layer.feed_forward:
        count += 8 if isinstance(part, Experts) else 4
    return count
