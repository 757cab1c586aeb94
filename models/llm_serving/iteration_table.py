"""Times of iterations interpolated between a grid, and times of deployments as columns.

A replay need not compute each iteration anew. Columns hold the times and rates of deployments
before those that are answered become predictions.
"""

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
    """Times and rates of n deployments, whose intervals are kept however wide they are.

    Attributes:
        estimates: metric -> best estimates and the low and high ends of their intervals, (n, 3);
            NaN where there is none.
        coverage: metric -> (n,) nominal coverages of the intervals; NaN where there is none.
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
            own = np.full(len(found), found.coverage_of(name), dtype=np.float64)
            stated = found.row_coverage.get(name, own)
            coverage[name] = np.where(np.isnan(stated), own, stated)
        return cls(estimates, coverage, found.limits or [()] * len(found))

    @classmethod
    def of_predictions(cls, found: Sequence[Prediction]) -> Self:
        """The columns of n predictions."""
        estimates, coverage = {}, {}
        for name in dict.fromkeys(name for one in found for name in one.estimates):
            every = [one.estimates.get(name, _NOTHING) for one in found]
            rows = [(own.value, own.low, own.high, own.coverage) for own in every]
            columns = np.array(rows, dtype=np.float64)
            estimates[name], coverage[name] = columns[:, :3], columns[:, 3]
        return cls(estimates, coverage, [one.limits for one in found])

    def __len__(self) -> int:
        return len(self.limits)

    def prediction(self, row: int) -> Prediction:
        """The prediction of one deployment."""
        (found,) = self.take(slice(row, row + 1)).predictions()
        return found

    def predictions(self) -> list[Prediction]:
        """The prediction of each deployment."""
        columns = {
            name: np.column_stack([own, self.coverage[name]]).tolist()
            for name, own in self.estimates.items()
        }
        return [
            Prediction(
                {
                    name: _estimate(*own[row])
                    for name, own in columns.items()
                    if not isnan(own[row][0])
                },
                all(limit.in_domain for limit in limits),
                limits,
            )
            for row, limits in enumerate(self.limits)
        ]

    def scaled(self, factors: Mapping[str, Column]) -> Self:
        """The same, metrics and their intervals times factors of shape (n,)."""
        changed = {name: self.estimates[name] * own[:, None] for name, own in factors.items()}
        return replace(self, estimates={**self.estimates, **changed})


_NOTHING: Final = Estimate(nan)


def _estimate(value: float, low: float, high: float, coverage: float) -> Estimate:
    """An estimate from numbers that are NaN where there is none."""
    if isnan(low):
        return Estimate(value)
    return Estimate(value, low, high, None if isnan(coverage) else coverage)


_DECODE_RATIO = 1.2
_TOKENS_RATIO = 1.25
_SEQUENCES_RATIO = 1.5
_CONTEXT_RATIO = 3.0


@dataclass(frozen=True)
class DecodeTimes:
    """Times of iterations in which a fixed number of sequences decode, by their mean context.

    Attributes:
        contexts: mean tokens in the cache of a sequence, rising from 0.
        seconds: time of an iteration at each; linear between them.
    """

    contexts: list[float]
    seconds: list[float]

    def advance(
        self, context: float, growth: float, iterations: int, until_s: float
    ) -> tuple[int, float]:
        """Iterations in sequence, and the time that they take, seconds.

        They end when `iterations` are done, or with the first that ends at `until_s` or later; one
        is always done.

        Args:
            context: mean tokens in a sequence's cache at the first of them.
            growth: tokens that each iteration adds to it.
            iterations: most iterations.
            until_s: time from the start of the first, seconds.
        """
        done, spent = 0, 0.0
        contexts, seconds = self.contexts, self.seconds
        while done < iterations and (spent < until_s or not done):
            cell = min(bisect_right(contexts, context), len(contexts) - 1)
            width = contexts[cell] - contexts[cell - 1]
            slope = (seconds[cell] - seconds[cell - 1]) / width
            first = seconds[cell - 1] + slope * (context - contexts[cell - 1])
            left = iterations - done
            inside = ceil((contexts[cell] - context) / growth)
            count = min(left, inside) if inside > 0 else left
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
    """Times of a worker's iterations, interpolated.

    Iterations of decoding alone are computed for each number of sequences and interpolated in
    their context. Those with tokens of prompts are interpolated between products of four axes;
    a single prompt is assumed in each.

    Attributes:
        time: what is interpolated.
        contexts: grid of the mean context, tokens, of the first kind.
        axes: tokens of prompts, tokens that each attends to, sequences that decode, their mean
            context: the grid of the second kind.
        seconds: times on `axes`, in the order of a C array.
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
        """A table for iterations up to these sizes.

        Args:
            time: what is interpolated.
            most_tokens: tokens of prompts in one iteration.
            most_sequences: sequences that decode in one iteration.
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
        """Times of iterations in which so many sequences decode, and nothing else happens."""
        found = self._decoding.get(sequences)
        if found is None:
            contexts = np.array(self.contexts)
            seconds = np.asarray(self.time.seconds(decode_only(sequences, contexts))).tolist()
            found = self._decoding[sequences] = DecodeTimes(self.contexts, seconds)
        return found

    def mixed(self, tokens: int, pairs: float, sequences: int, context: float) -> float:
        """Time of one iteration with tokens of prompts, seconds.

        Args:
            tokens: tokens of prompts, at least 1.
            pairs: pairs of such a token and one that it attends to.
            sequences: sequences that decode one token.
            context: tokens in the caches of all these together.
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
    """Iterations in which so many sequences of these mean contexts, shape (n,), decode."""
    none = np.zeros(len(contexts))
    return Iterations(
        none, none, none, np.full(len(contexts), float(sequences)), sequences * contexts
    )


def _cell(axis: list[float], value: float) -> tuple[int, float]:
    """Position of the interval that holds the value, and where in it the value lies, 0 to 1."""
    cell = min(max(bisect_right(axis, value), 1), len(axis) - 1) - 1
    share = (value - axis[cell]) / (axis[cell + 1] - axis[cell])
    return cell, min(max(share, 0.0), 1.0)


def _axis(first: int, last: int, ratio: float) -> list[float]:
    """Whole numbers from first to last, each at most about `ratio` times the one before."""
    count = 1 + ceil(np.log(last / first) / np.log(ratio))
    return [float(value) for value in np.unique(np.rint(np.geomspace(first, last, count)))]
