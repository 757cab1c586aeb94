"""What to measure next in a search: expected improvement by what was measured.

Expected improvement is that of Jones, Schonlau and Welch, "Efficient Global Optimization of
Expensive Black-Box Functions" (Journal of Global Optimization 1998), times the probability that the
limits are kept (Gardner et al., "Bayesian Optimization with Inequality Constraints", ICML 2014).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from math import inf, isfinite, log, nan
from numbers import Real
from typing import Any, Final

import numpy as np

from forerun.data.columns import Column, Matrix, Positions
from forerun.data.errors import InputError
from forerun.models.benchmark_suites.scores import MOST_ROWS, SmoothLaw, Tests
from forerun.models.benchmark_suites.scores import Settings as Encoding

Settings = Mapping[str, float | str]
Values = Mapping[str, float]
Predict = Callable[[dict[str, Any]], Any]
DRAWN: Final = 2000
"""Candidates that are drawn in one call."""
FIRST: Final = 10
"""Measurements up to which candidates come in the order given."""
_LEAST: Final = 1e-300


@dataclass
class Search:
    """A search for the settings with the least or the most of a metric.

    The first ten measurements are random. Then candidates have the greatest expected improvement,
    times the probability that they keep the limits, by Gaussian processes of the measurements.

    Attributes:
        space: setting -> its choices, or its range as `{"low": 1, "high": 64}`, of whole numbers if
            both ends are, drawn in logarithms if both are positive; or a list of all candidates.
        minimise: metric to minimise.
        maximise: metric to maximise, in place of `minimise`.
        limits: metric -> the most that it may be, in the metric's unit.
        predict: function settings -> an answer of forerun, or metric -> value. A candidate is given
            only if the upper ends of all its metrics keep their limits; limits of other metrics are
            learnt from the measurements.
        seed: of the candidates.
        measurements: settings and values of each measured candidate.
        asked: settings that `ask` gave.
    """

    space: Mapping[str, Sequence[float | str] | Values] | Sequence[Settings]
    minimise: str = ""
    maximise: str = ""
    limits: Values = field(default_factory=dict)
    predict: Predict | None = None
    seed: int = 0
    measurements: Sequence[tuple[Settings, Values]] = ()
    asked: Sequence[Settings] = ()

    def __post_init__(self) -> None:
        if bool(self.minimise) == bool(self.maximise):
            raise InputError("Give one of minimise= and maximise=, the name of a metric.")
        given = self.space.items() if isinstance(self.space, Mapping) else [("space", self.space)]
        for name, own in given:
            ends = own if isinstance(own, Mapping) else {"low": 0, "high": 1}
            if not own or not ends.get("low", inf) <= ends.get("high", -inf):
                raise InputError(f'{name}: give a list, or a range as {{"low": 1, "high": 64}}.')
        for settings, _ in self.measurements:
            self._check(settings)

    def ask(self, n: int = 1) -> list[dict[str, Any]]:
        """At most n candidates, best first, none of which was asked for or measured before.

        Raises:
            InputError: none is left, or none keeps the limits by the upper ends of `predict`.
        """
        if n < 1:
            raise InputError(f"n is {n}: ask for at least one candidate.")
        settings = [own for own, _ in self.measurements]
        taken = {_key(own) for own in (*self.asked, *settings)}
        drawn = {_key(own): own for own in self._drawn(len(taken))}
        left = [own for key, own in drawn.items() if key not in taken]
        if not left:
            raise InputError("All candidates were asked for or measured: widen space=.")
        columns = {name: self._measured(name) for name in self.limits}
        known = [name for name, own in columns.items() if np.isfinite(own).any()]
        limited = [_shares(columns[name], self.limits[name]) for name in known]
        losses = _logs(self._measured(self.minimise or self.maximise))
        order = by_worth(left, settings, losses if self.minimise else -losses, limited)
        found = list(islice((left[at] for at in order if self._keeps(left[at], {})), n))
        if not found:
            raise InputError(
                f"{len(left)} candidates are new, and none keeps the limits {dict(self.limits)} by "
                "the upper ends of predict=: loosen them or widen space=."
            )
        self.asked = [*self.asked, *found]
        return [dict(own) for own in found]

    def tell(self, settings: Settings, values: Any) -> None:
        """Add a measurement.

        Args:
            settings: settings of a candidate, asked for or not.
            values: metric -> value, without those that are not known (`{}` for a failed run); or an
                answer of forerun, whose upper ends count for limits.

        Raises:
            InputError: a setting is missing or not known, or a value is not a finite number.
        """
        self._check(settings)
        given = getattr(values, "metrics", values)
        found = {name: _number(own, upper=name in self.limits) for name, own in given.items()}
        for name, own in found.items():
            if own is not None and not (isinstance(own, Real) and isfinite(own)):
                raise InputError(f"{name} is {own!r}: give a finite number, or leave it out.")
        known = {name: float(own) for name, own in found.items() if own is not None}
        plain = {n: x.item() if isinstance(x, np.generic) else x for n, x in settings.items()}
        self.measurements = [*self.measurements, (plain, known)]

    def _check(self, settings: Settings) -> None:
        """Refuse settings that are none of a candidate.

        Raises:
            InputError: a setting is missing or not known, or its value is outside the space.
        """
        space = self.space
        names = set(space if isinstance(space, Mapping) else space[0])
        if set(settings) != names:
            raise InputError(f"settings {sorted(settings)}: give {sorted(names)}.")
        for name in sorted(names):
            choices = space[name] if isinstance(space, Mapping) else [own[name] for own in space]
            value = settings[name]
            if not isinstance(choices, Mapping):
                inside = value in choices
            else:
                inside = isinstance(value, Real) and choices["low"] <= value <= choices["high"]
            if not inside:
                raise InputError(f"{name} is {value!r}, which is not in the space.")

    @property
    def best(self) -> tuple[Settings, Values] | None:
        """The best measurement that keeps all limits; None if there is none."""
        name = self.minimise or self.maximise
        kept = [
            own for own in self.measurements if name in own[1] and self._keeps(*own, known=True)
        ]
        return (min if self.minimise else max)(kept, key=lambda own: own[1][name], default=None)

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON has it: `Search(**state, predict=...)` goes on with it."""
        return {own.name: getattr(self, own.name) for own in fields(self) if own.name != "predict"}

    def _keeps(self, settings: Settings, values: Values, *, known: bool = False) -> bool:
        """Whether values, and upper ends of what else is predicted, keep the limits.

        Args:
            settings: settings of a candidate.
            values: its measured values.
            known: whether all metrics with a limit must be measured or predicted.
        """
        everything = set(self.limits) <= set(values)
        answer: Any = {} if self.predict is None or everything else self.predict(dict(settings))
        missing = dict.fromkeys(getattr(answer, "missing", ()))
        given = {**missing, **getattr(answer, "metrics", answer)}
        ends = {name: _number(own, upper=True) for name, own in given.items()}
        least = inf if known else -inf
        known_ends = {name: inf if end is None else end for name, end in ends.items()} | dict(
            values
        )
        return all(known_ends.get(name, least) <= most for name, most in self.limits.items())

    def _measured(self, metric: str) -> Column:
        """Measured values of a metric, shape (len(measurements),); NaN where there is none."""
        return np.array(
            [values.get(metric, nan) for _, values in self.measurements], dtype=np.float64
        )

    def _drawn(self, stream: int) -> Iterator[Settings]:
        random = np.random.default_rng((self.seed, stream))
        if not isinstance(self.space, Mapping):
            order = random.permutation(len(self.space))[:DRAWN].tolist()
            return (self.space[at] for at in order)
        columns = [_draws(own, random) for own in self.space.values()]
        return (dict(zip(self.space, row, strict=True)) for row in zip(*columns, strict=True))


def _draws(own: Sequence[float | str] | Values, random: np.random.Generator) -> list[Any]:
    """Values of one setting, len = DRAWN."""
    if not isinstance(own, Mapping):
        return [own[at] for at in random.integers(len(own), size=DRAWN).tolist()]
    low, high = own["low"], own["high"]
    whole = isinstance(low, int) and isinstance(high, int)
    ends = (low - 0.5, high + 0.5) if whole else (low, high)
    first, last = np.log(ends) if low > 0 else np.array(ends)
    drawn = random.uniform(first, last, DRAWN)
    drawn = np.exp(drawn) if low > 0 else drawn
    return list((np.rint(drawn).astype(np.int64) if whole else drawn).clip(low, high).tolist())


def _key(settings: Settings) -> str:
    plain = {name: own if isinstance(own, str) else float(own) for name, own in settings.items()}
    return json.dumps(plain, sort_keys=True)


def _logs(values: Column) -> Column:
    """Logarithms, where all values are positive."""
    return values if (values <= 0.0).any() else np.log(values)


def _shares(values: Column, most: float) -> tuple[Column, float]:
    """Values and a limit as logarithms of 1 + value / limit, which tell zero from half of the limit
    and do not tell a tenth from a hundredth of it; as they are, where any is negative.
    """
    if not most > 0.0 or (values < 0.0).any():
        return values, most
    return np.log1p(values / most), log(2.0)


def _number(given: Any, *, upper: bool) -> Any:
    """A number, or the value or the upper end of an estimate; None where there is none."""
    return given if not hasattr(given, "high") else given.high if upper else given.value


def by_worth(
    candidates: Tests, measured: Tests, losses: Column, limited: Sequence[tuple[Column, float]] = ()
) -> Positions:
    """Positions of n candidates, first the one that is most worth measuring.

    Args:
        candidates: settings of n candidates, in a random order.
        measured: settings of k measured ones.
        losses: what is minimised, shape (k,), on a scale on which differences compare, such as
            logarithms; NaN where it was not measured. Its unit does not matter.
        limited: of each metric with a limit, its measured values on such a scale, shape (k,), and
            the limit.

    Returns:
        Shape (n,).
    """
    from scipy.special import log_ndtr
    from scipy.stats import norm

    known = np.isfinite(losses)
    if known.sum() < FIRST:
        return np.arange(len(candidates))
    settings = Encoding.of([*measured, *candidates])
    rows, inputs = settings.encoded(measured), settings.encoded(candidates)
    worth, allowed = np.zeros(len(candidates)), known
    for values, most in limited:
        mean, deviation = _normal(rows, values, inputs)
        worth += log_ndtr((most - mean) / deviation)
        allowed = allowed & (values <= most)
    if allowed.any():
        mean, deviation = _normal(rows, losses, inputs)
        gap = (losses[allowed].min() - mean) / deviation
        worth += np.log(gap * norm.cdf(gap) + norm.pdf(gap) + _LEAST) + np.log(deviation)
    return np.argsort(-worth, kind="stable")


def _normal(rows: Matrix, values: Column, inputs: Matrix) -> tuple[Column, Column]:
    """Means and standard deviations of n inputs, by the latest of the values that are known."""
    known = np.flatnonzero(np.isfinite(values))[-MOST_ROWS:]
    if not len(known):
        return np.zeros(len(inputs)), np.ones(len(inputs))
    middle, spread = values[known].mean(), values[known].std() or 1.0
    law = SmoothLaw.fit(rows[known], (values[known] - middle) / spread)
    if law is None:
        return np.full(len(inputs), middle), np.full(len(inputs), spread)
    mean, deviation = law.normal(inputs)
    return middle + spread * mean, spread * deviation
