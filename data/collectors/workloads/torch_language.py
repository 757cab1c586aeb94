"""Networks over tokens, from their papers' tables."""

from typing import TYPE_CHECKING

from forerun.data.collectors.workloads.torch_blocks import (
    embedded,
    recurrent,
    scaled_by,
    self_attention,
    sum_of,
)

if TYPE_CHECKING:
    from torch import nn

BERT_ENTRIES, GPT_ENTRIES, LLAMA_ENTRIES, LSTM_ENTRIES = 30522, 50257, 32000, 10000


def encoder_block(width: int, heads: int, causal: bool = False) -> "nn.Module":
    """Attention and a perceptron of four times the width, each normalised before."""
    from torch import nn

    attend = nn.Sequential(nn.LayerNorm(width), self_attention()(width, heads, causal=causal))
    inner = (nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    think = nn.Sequential(nn.LayerNorm(width), *inner)
    both = (sum_of()(nn.Identity(), attend), sum_of()(nn.Identity(), think))
    return nn.Sequential(*both)


def bert(width: int, depth: int, heads: int, length: int) -> "nn.Module":
    """BERT as an encoder, its normalisation after each sum, without a head."""
    from torch import nn

    def block() -> nn.Module:
        attend = self_attention()(width, heads)
        inner = (nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        both = (
            sum_of()(nn.Identity(), attend, after=nn.LayerNorm(width)),
            sum_of()(nn.Identity(), nn.Sequential(*inner), after=nn.LayerNorm(width)),
        )
        return nn.Sequential(*both)

    tokens = embedded()(nn.Embedding(BERT_ENTRIES, width), length, width)
    return nn.Sequential(tokens, nn.LayerNorm(width), *(block() for _ in range(depth)))


def gpt(width: int, depth: int, heads: int, length: int) -> "nn.Module":
    """GPT-2 reading a prompt: logits of every position."""
    from torch import nn

    tokens = embedded()(nn.Embedding(GPT_ENTRIES, width), length, width)
    blocks = (encoder_block(width, heads, causal=True) for _ in range(depth))
    last = nn.Linear(width, GPT_ENTRIES, bias=False)
    return nn.Sequential(tokens, *blocks, nn.LayerNorm(width), last)


def llama(width: int, depth: int, heads: int, kept: int, inner: int, length: int) -> "nn.Module":
    """Llama's shapes reading a prompt: RMS norms, gated perceptrons, shared keys and values.

    Positions are learned embeddings, not rotary ones: two small kernels fewer per layer.
    """
    from torch import nn

    def norm() -> nn.Module:
        return nn.RMSNorm(width)

    def block() -> nn.Module:
        attend = self_attention()(width, heads, kept, causal=True, bias=False)
        gate = nn.Sequential(nn.Linear(width, inner, bias=False), nn.SiLU())
        think = scaled_by()(gate, nn.Linear(width, inner, bias=False))
        down = nn.Linear(inner, width, bias=False)
        both = (
            sum_of()(nn.Identity(), nn.Sequential(norm(), attend)),
            sum_of()(nn.Identity(), nn.Sequential(norm(), think, down)),
        )
        return nn.Sequential(*both)

    tokens = embedded()(nn.Embedding(LLAMA_ENTRIES, width), length, width)
    last = nn.Linear(width, LLAMA_ENTRIES, bias=False)
    return nn.Sequential(tokens, *(block() for _ in range(depth)), norm(), last)


def lstm(width: int, depth: int, length: int) -> "nn.Module":
    """A language model of LSTM layers."""
    from torch import nn

    tokens = embedded()(nn.Embedding(LSTM_ENTRIES, width), length, width)
    return nn.Sequential(tokens, recurrent()(width, depth), nn.Linear(width, LSTM_ENTRIES))
