"""Requests to a language model: arrival times, prompt lengths and answer lengths."""

from dataclasses import dataclass

from forerun.data.columns import Column, Columns, Positions
from forerun.data.language_models.deployment import RequestLoad


@dataclass(frozen=True, slots=True)
class Requests(Columns):
    """n requests in order of arrival.

    Attributes:
        arrival_s: (n,) arrival times, seconds from any origin, non-decreasing.
        input_tokens: (n,) prompt length, at least 1.
        output_tokens: (n,) answer length, at least 1.
    """

    arrival_s: Column
    input_tokens: Positions
    output_tokens: Positions

    def __len__(self) -> int:
        return len(self.arrival_s)

    def rows(self) -> list[dict[str, float]]:
        """Each request as a mapping from field to value."""
        names = ("arrival_s", "input_tokens", "output_tokens")
        columns = [getattr(self, name).tolist() for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def load(self) -> RequestLoad:
        """The load: mean arrival rate, and means and coefficients of variation of the lengths."""
        span_s = float(self.arrival_s[-1] - self.arrival_s[0]) if len(self) > 1 else 0.0
        inputs, outputs = self.input_tokens, self.output_tokens
        return RequestLoad(
            float(inputs.mean()),
            float(outputs.mean()),
            requests_per_s=(len(self) - 1) / span_s if span_s else None,
            input_variation=float(inputs.std() / inputs.mean()),
            output_variation=float(outputs.std() / outputs.mean()),
        )
