"""Interpolated iteration times for replays, and columns of predicted times of deployments."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, isnan, nan, sqrt
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column, Columns, Matrix
from forerun.features.llm_serving.iteration import Iterations, IterationTime
from forerun.models.limit import Limit
from forerun.models.prediction import Estimate, Prediction, Predictions


@dataclass(frozen=True, slots=True)
class TimeColumns(Columns):
    """Times and rates of n deployments, with intervals of any width, before they are answered.

    Attributes:
        estimates: metric -> best estimates, lower and upper bounds, (n, 3); NaN for none.
        coverage: metric -> (n,) nominal coverage of the intervals; NaN for none.
        limits: n tuples of limits.
    """

    estimates: Mapping[str, Matrix]
    coverage: Mapping[str, Column]
    limits: Sequence[tuple[Limit, ...]]

    @classmethod
    def of(cls, found: Predictions, metrics: Iterable[str]) -> Self:
        """The columns of some metrics of predictions."""
        nothing, estimates, coverage = np.full(len(found), np.nan), {}, {}
        for name in metrics:
            ends = (found.low.get(name, nothing), found.high.get(name, nothing))
            estimates[name] = np.stack([found.values[name], *ends], axis=1)
            nominal = np.full(len(found), found.coverage_of(name), dtype=np.float64)
            stated = found.row_coverage.get(name, nominal)
            coverage[name] = np.where(np.isnan(stated), nominal, stated)
        return cls(estimates, coverage, found.limits or [()] * len(found))

    @classmethod
    def of_predictions(cls, found: Sequence[Prediction]) -> Self:
        """The columns of n predictions."""
        estimates, coverage = {}, {}
        for name in dict.fromkeys(name for one in found for name in one.estimates):
            column = [one.estimates.get(name, _NOTHING) for one in found]
            rows = [(one.value, one.low, one.high, one.coverage) for one in column]
            columns = np.array(rows, dtype=np.float64)
            estimates[name], coverage[name] = columns[:, :3], columns[:, 3]
        return cls(estimates, coverage, [one.limits for one in found])

    def __len__(self) -> int:
        return len(self.limits)

    def prediction(self, row: int) -> Prediction:
        """The prediction of one deployment."""
        (prediction,) = self.take(slice(row, row + 1)).predictions()
        return prediction

    def predictions(self) -> list[Prediction]:
        """The prediction of each deployment."""
        columns = {
            name: np.column_stack([estimates, self.coverage[name]]).tolist()
            for name, estimates in self.estimates.items()
        }
        return [
            Prediction(
                {
                    name: _estimate(*column[row])
                    for name, column in columns.items()
                    if not isnan(column[row][0])
                },
                all(limit.in_domain for limit in limits),
                limits,
            )
            for row, limits in enumerate(self.limits)
        ]

    def scaled(self, factors: Mapping[str, Column]) -> Self:
        """Multiply metrics and their intervals by factors of shape (n,)."""
        scaled = {name: self.estimates[name] * each[:, None] for name, each in factors.items()}
        return replace(self, estimates={**self.estimates, **scaled})


_NOTHING: Final = Estimate(nan)


def _estimate(value: float, low: float, high: float, coverage: float) -> Estimate:
    """An estimate from numbers, of which NaN stands for none."""
    if isnan(low):
        return Estimate(value)
    return Estimate(value, low, high, None if isnan(coverage) else coverage)


_DECODE_RATIO = 1.2
_TOKENS_RATIO = 1.25
_SEQUENCES_RATIO = 1.5
_CONTEXT_RATIO = 3.0


@dataclass(frozen=True)
class DecodeTimes:
    """Times of iterations that decode a fixed number of sequences, by their mean context.

    Attributes:
        contexts: mean cached tokens per sequence, rising from 0.
        seconds: iteration time at each context; linear between them.
    """

    contexts: list[float]
    seconds: list[float]

    def advance(
        self, context: float, growth: float, iterations: int, until_s: float
    ) -> tuple[int, float]:
        """Run consecutive iterations; returns their number and total time, seconds.

        It stops after `iterations`, or after the first that ends at `until_s` or later; it always
        runs at least one.

        Args:
            context: mean cached tokens per sequence in the first iteration.
            growth: tokens that each iteration adds to the context.
            iterations: most iterations.
            until_s: time from the start of the first iteration, seconds.
        """
        done, spent = 0, 0.0
        contexts, seconds = self.contexts, self.seconds
        while done < iterations and (spent < until_s or not done):
            cell = min(bisect_right(contexts, context), len(contexts) - 1)
            width = contexts[cell] - contexts[cell - 1]
            slope = (seconds[cell] - seconds[cell - 1]) / width
            first = seconds[cell - 1] + slope * (context - contexts[cell - 1])
            remaining = iterations - done
            inside = ceil((contexts[cell] - context) / growth)
            count = min(remaining, inside) if inside > 0 else remaining
            step = slope * growth
            if until_s < spent + first * count + step * count * (count - 1) / 2:
                count = min(count, _terms(first, step, until_s - spent))
            spent += first * count + step * count * (count - 1) / 2
            done += count
            context += growth * count
        return done, spent


def _terms(first: float, step: float, total: float) -> int:
    """Least number of terms, at least 1, of an arithmetic series whose sum reaches `total`."""
    if total <= first:
        return 1
    half = first - step / 2
    root = sqrt(max(0.0, half * half + 2 * step * total))
    count = ceil(2 * total / (half + root) - 1e-9)
    return max(1, count)


@dataclass(frozen=True)
class IterationTable:
    """Interpolated iteration times of a worker.

    Decode-only iterations are computed for each number of sequences, and interpolated over the mean
    context. Iterations with prompt tokens are interpolated on a grid of four axes, assuming one
    prompt in each.

    Attributes:
        time: the interpolated times.
        contexts: mean contexts of decode-only iterations, tokens.
        axes: grid of iterations with prompts: prompt tokens, tokens that each attends to, decoding
            sequences, and their mean context.
        seconds: times on `axes`, in C order.
    """

    time: IterationTime
    contexts: list[float]
    axes: tuple[list[float], list[float], list[float], list[float]]
    seconds: list[float]
    _decoding: dict[int, DecodeTimes] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls, time: IterationTime, most_tokens: int, most_sequences: int, most_context: int
    ) -> Self:
        """Build a table for iterations up to these sizes.

        Args:
            time: the times to interpolate.
            most_tokens: most prompt tokens in an iteration.
            most_sequences: most decoding sequences in an iteration.
            most_context: tokens of the longest sequence.
        """
        axes = (
            _axis(1, max(2, most_tokens), _TOKENS_RATIO),
            [0.0, *_axis(64, max(65, most_context), _CONTEXT_RATIO)],
            [0.0, *_axis(1, max(2, most_sequences), _SEQUENCES_RATIO)],
            [0.0, *_axis(64, max(65, most_context), _CONTEXT_RATIO)],
        )
        tokens, attended, sequences, context = np.meshgrid(*axes, indexing="ij")
        rows = Iterations(
            tokens.ravel(),
            (tokens * attended).ravel(),
            np.ones(tokens.size),
            sequences.ravel(),
            (sequences * context).ravel(),
        )
        contexts = [0.0, *_axis(16, max(17, most_context), _DECODE_RATIO)]
        return cls(time, contexts, axes, np.asarray(time.seconds(rows)).tolist())

    def decoding(self, sequences: int) -> DecodeTimes:
        """Times of decode-only iterations with this many sequences."""
        times = self._decoding.get(sequences)
        if times is None:
            contexts = np.array(self.contexts)
            seconds = np.asarray(self.time.seconds(decode_only(sequences, contexts))).tolist()
            times = self._decoding[sequences] = DecodeTimes(self.contexts, seconds)
        return times

    def mixed(self, tokens: int, pairs: float, sequences: int, context: float) -> float:
        """Time of one iteration with prompt tokens, seconds.

        Args:
            tokens: prompt tokens, at least 1.
            pairs: pairs of such a token and one that it attends to.
            sequences: sequences that decode one token.
            context: cached tokens of all these sequences together.
        """
        p, a, d, c = self.axes
        i, u = _cell(p, tokens)
        j, v = _cell(a, pairs / tokens)
        k, w = _cell(d, sequences)
        m, x = _cell(c, context / sequences if sequences else 0.0)
        columns, planes = len(c), len(c) * len(d)
        value, total = self.seconds, 0.0
        for first, share in ((i, 1 - u), (i + 1, u)):
            for second, part in ((j, share * (1 - v)), (j + 1, share * v)):
                at = (first * len(a) + second) * planes + k * columns + m
                low = value[at] + x * (value[at + 1] - value[at])
                at += columns
                high = value[at] + x * (value[at + 1] - value[at])
                total += part * (low + w * (high - low))
        return total


def decode_only(sequences: int, contexts: Column) -> Iterations:
    """Decode-only iterations with this many sequences, at mean contexts of shape (n,)."""
    none = np.zeros(len(contexts))
    return Iterations(
        none, none, none, np.full(len(contexts), float(sequences)), sequences * contexts
    )


def _cell(axis: list[float], value: float) -> tuple[int, float]:
    """Index of the axis interval that holds the value, and the value's position in it, 0 to 1."""
    cell = min(max(bisect_right(axis, value), 1), len(axis) - 1) - 1
    share = (value - axis[cell]) / (axis[cell + 1] - axis[cell])
    return cell, min(max(share, 0.0), 1.0)


def _axis(first: int, last: int, ratio: float) -> list[float]:
    """Integers from first to last, each at most about `ratio` times the one before."""
    count = 1 + ceil(np.log(last / first) / np.log(ratio))
    return [float(value) for value in np.unique(np.rint(np.geomspace(first, last, count)))]
