"""Requests to a language model: when they arrive, and how long they are."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from forerun.data.columns import Column, Columns, Positions
from forerun.data.language_models.deployment import RequestLoad


@dataclass(frozen=True, slots=True)
class Requests(Columns):
    """n requests in the order of their arrival.

    Attributes:
        arrival_s: (n,) time of arrival, seconds from any origin, never falling.
        input_tokens: (n,) length of the prompt, at least 1.
        output_tokens: (n,) tokens written for it, at least 1.
    """

    arrival_s: Column
    input_tokens: Positions
    output_tokens: Positions

    def __len__(self) -> int:
        return len(self.arrival_s)

    @classmethod
    def poisson(cls, load: RequestLoad, count: int, seed: int = 0) -> Self:
        """Requests of a load with Poisson arrivals; all arrive at once where it has no rate.

        Lengths are log-normal, independent of each other, with the load's means and variations.
        Equal seeds give equal lengths, and arrivals that differ by the rate only.

        Args:
            load: lengths and rate.
            count: number of requests.
            seed: of the random numbers.
        """
        random = np.random.default_rng(seed)
        gaps = random.standard_exponential(count)
        lengths = random.standard_normal((2, count))
        rate = load.requests_per_s
        arrivals = np.zeros(count) if rate is None else np.cumsum(gaps) / rate
        inputs = _lengths(load.input_tokens, load.input_variation, lengths[0])
        return cls(
            arrivals, inputs, _lengths(load.output_tokens, load.output_variation, lengths[1])
        )

    def load(self) -> RequestLoad:
        """Mean rate, and means and variations of the lengths."""
        span_s = float(self.arrival_s[-1] - self.arrival_s[0]) if len(self) > 1 else 0.0
        inputs, outputs = self.input_tokens, self.output_tokens
        return RequestLoad(
            float(inputs.mean()),
            float(outputs.mean()),
            requests_per_s=(len(self) - 1) / span_s if span_s else None,
            input_variation=float(inputs.std() / inputs.mean()),
            output_variation=float(outputs.std() / outputs.mean()),
        )


def _lengths(mean: float, variation: float, normal: Column) -> Positions:
    """Log-normal lengths of that mean and variation from standard normal numbers."""
    spread = np.sqrt(np.log1p(variation**2))
    lengths = np.rint(mean * np.exp(spread * normal - spread**2 / 2))
    return np.asarray(np.maximum(1, lengths), dtype=np.intp)
