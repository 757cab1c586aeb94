"""Iterations of an inference engine: forward passes over prompt chunks and decoding sequences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

import numpy as np

from forerun.data.columns import Column


@dataclass(frozen=True)
class Iterations:
    """n iterations of one worker; quantities are those of one data-parallel rank.

    Attributes:
        prefill_tokens: (n,) prompt tokens processed.
        prefill_pairs: (n,) pairs of such a token and a token that it attends to, before any window:
            a whole prompt of t tokens has t (t + 1) / 2, a chunk of c after k cached tokens has
            c k + c (c + 1) / 2.
        prefill_sequences: (n,) prompts that these tokens belong to.
        decode_sequences: (n,) sequences that decode one token.
        decode_context: (n,) cached tokens of all these sequences together.
    """

    prefill_tokens: Column
    prefill_pairs: Column
    prefill_sequences: Column
    decode_sequences: Column
    decode_context: Column

    def __len__(self) -> int:
        return len(self.prefill_tokens)

    def combined_with(self, other: Self) -> Self:
        """Merge n iterations with n others, pair by pair."""
        return type(self)(*(getattr(self, f) + getattr(other, f) for f in _FIELDS))

    @classmethod
    def stacked(cls, several: Sequence[Self]) -> Self:
        """Concatenate several sets of iterations."""
        return cls(*(np.concatenate([getattr(one, f) for one in several]) for f in _FIELDS))


_FIELDS: Final = tuple(Iterations.__dataclass_fields__)


class IterationTime(Protocol):
    """Times of iterations of one deployed worker."""

    def seconds(self, iterations: Iterations) -> Column:
        """Time of each iteration, shape (n,), seconds."""
        ...
