"""Recurrent layers, which keep a fixed-size state instead of a KV cache."""

from abc import ABC, abstractmethod
from dataclasses import dataclass


class Recurrent(ABC):
    """A layer that mixes tokens through a recurrent state."""

    __slots__ = ()

    @abstractmethod
    def parameters(self, hidden_size: int) -> int:
        """Number of weights in a layer with this hidden size."""

    @abstractmethod
    def cached(self, context_tokens: int) -> int:
        """Number of values kept per sequence, independent of its length."""


@dataclass(frozen=True, slots=True)
class GatedDeltaNet(Recurrent):
    """Linear attention by the gated delta rule (arXiv 2412.06464), as in Qwen3-Next.

    Attributes:
        key_heads, value_heads: number of heads.
        key_dim, value_dim: width of a head.
        convolution: kernel size of the preceding convolution, tokens.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    convolution: int

    def parameters(self, hidden_size: int) -> int:
        """Number of weights in a layer with this hidden size."""
        keys, values = self.key_heads * self.key_dim, self.value_heads * self.value_dim
        made = hidden_size * (2 * keys + 2 * values + 2 * self.value_heads)
        return made + (2 * keys + values) * self.convolution + values * hidden_size

    def cached(self, context_tokens: int) -> int:
        """Number of values kept per sequence, independent of its length."""
        channels = 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
        state = self.value_heads * self.key_dim * self.value_dim
        return state + channels * (self.convolution - 1)


@dataclass(frozen=True, slots=True)
class KimiDeltaAttention(Recurrent):
    """Linear attention with a decay for each channel (arXiv 2510.26692).

    Attributes:
        heads: number of heads.
        head_dim: width of a query, key or value head.
        convolution: kernel size of the preceding convolutions, tokens.
        full_gate: whether the output gate is a full-rank matrix; otherwise its rank is `head_dim`.
    """

    heads: int
    head_dim: int
    convolution: int
    full_gate: bool = False

    def parameters(self, hidden_size: int) -> int:
        """Number of weights in a layer with this hidden size."""
        width = self.heads * self.head_dim
        low_rank = self.head_dim * (hidden_size + width)
        gate = hidden_size * width if self.full_gate else low_rank
        products = 4 * hidden_size * width + hidden_size * self.heads
        return products + low_rank + gate + 3 * width * self.convolution

    def cached(self, context_tokens: int) -> int:
        """Number of values kept per sequence, independent of its length."""
        width = self.heads * self.head_dim
        return width * self.head_dim + 3 * width * (self.convolution - 1)


@dataclass(frozen=True, slots=True)
class StateSpace(Recurrent):
    """A selective state space with scalar decay, Mamba-2 (arXiv 2405.21060).

    Attributes:
        heads: number of heads.
        head_dim: width of a head.
        groups: groups of heads that share input and output matrices.
        state_size: state values per channel.
        convolution: kernel size of the preceding convolution, tokens.
    """

    heads: int
    head_dim: int
    groups: int
    state_size: int
    convolution: int

    def parameters(self, hidden_size: int) -> int:
        """Number of weights in a layer with this hidden size."""
        width, shared = self.heads * self.head_dim, 2 * self.groups * self.state_size
        made = hidden_size * (2 * width + shared + self.heads)
        return made + (width + shared) * self.convolution + width * hidden_size

    def cached(self, context_tokens: int) -> int:
        """Number of values kept per sequence, independent of its length."""
        width, shared = self.heads * self.head_dim, 2 * self.groups * self.state_size
        return width * self.state_size + (width + shared) * (self.convolution - 1)


@dataclass(frozen=True, slots=True)
class ShortConvolution(Recurrent):
    """A short convolution between two gates (LFM2, arXiv 2511.23404).

    Attributes:
        width: number of channels.
        convolution: kernel size, tokens.
    """

    width: int
    convolution: int

    def parameters(self, hidden_size: int) -> int:
        """Number of weights in a layer with this hidden size."""
        return 4 * hidden_size * self.width + self.width * self.convolution

    def cached(self, context_tokens: int) -> int:
        """Number of values kept per sequence, independent of its length."""
        return self.width * (self.convolution - 1)
