"""Grouped split-conformal prediction: 90 % intervals calibrated on groups held out of training.

A predictor declares the groups of its rows (families of networks, devices), the strata with
quantiles of their own, and a scale where errors are heteroscedastic. `out_of_fold` predicts every
row with a fit that excludes its group. `LogQuantiles` takes quantiles of the residuals per stratum
with the finite-sample correction of split conformal prediction; `Intervals` combines those for
devices in the training set with those for other devices. `weighted_quantile` and `group_weights`
give each group the same weight.

Split conformal prediction on log(measured / predicted) (Vovk et al. 2005; Romano et al. 2019 for
the two-sided form). It is conditional on strata (Mondrian conformal prediction, Vovk et al. 2003),
and residuals are divided by a scale where errors differ in size (normalised residuals, Papadopoulos
et al. 2008).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from forerun.data.level import LEVEL
from forerun.data.shapes import Bool, Float64, Int, Shaped, Text


def held_out_folds(
    groups: Text[np.ndarray, " n"], folds: int | None = None, seed: int = 0
) -> Iterator[Bool[np.ndarray, " n"]]:
    """Masks of the rows to hold out, shapes (n,); no group is split between folds.

    Like scikit-learn's `GroupKFold` and `LeaveOneGroupOut`, but groups are assigned to folds by a
    seed, independently of the order and the number of rows.

    Args:
        groups: n labels.
        folds: number of folds, at most the number of groups. By default each group is held out by
            itself, in the order of their names.
        seed: assigns groups to folds.

    Yields:
        One mask for each fold; none with fewer than two groups, since nothing would remain to fit.
    """
    names, group = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        return
    fold_of = np.arange(len(names))
    if folds is not None:
        order = np.random.default_rng(seed).permutation(len(names))
        fold_of[order] = np.arange(len(names)) % folds
    for fold in range(int(fold_of.max()) + 1):
        yield fold_of[group] == fold


def out_of_fold(
    groups: Text[np.ndarray, " n"],
    predict: Callable[
        [Bool[np.ndarray, " n"]],
        Float64[np.ndarray, " held"] | Sequence[Float64[np.ndarray, " held"]] | float,
    ],
    *,
    folds: int | None = None,
    seed: int = 0,
    columns: int = 1,
) -> Float64[np.ndarray, "{columns} n"]:
    """Predict every row with a fit that excludes the row's group.

    Args:
        groups: n labels.
        predict: mask (n,) of the rows to hold out -> predictions of these rows by a fit on the
            other rows: an array, one array per column, or NaN where nothing could be fitted.
        folds: as in `held_out_folds`.
        seed: as in `held_out_folds`.
        columns: number of predicted quantities.

    Returns:
        Shape (columns, n); NaN with fewer than two groups.
    """
    predictions = np.full((columns, len(groups)), np.nan)
    for held in held_out_folds(groups, folds, seed):
        predictions[:, held] = predict(held)
    return predictions


_ROUNDING = 1e-9
"""Subtracted from levels, so that 9 of 10 equal weights reach the level 0.9."""


def conformal_quantile(
    scores: Float64[np.ndarray, " n"], level: float, groups: Shaped[np.ndarray, " n"] | None = None
) -> float:
    """The k-th smallest of n scores, k = ceil((n + 1) * level); the largest one where k > n.

    The order statistic of split conformal prediction (Lei et al. 2018, "Distribution-free
    predictive inference for regression", section 2.2), and for grouped rows that of hierarchical
    conformal prediction (Lee, Barber and Willett 2023, arXiv 2306.06342).

    A further exchangeable score is at most this one with probability k / (n + 1), which is at least
    the level where k <= n. For grouped rows the same holds for a row of a further exchangeable
    group: the correction counts groups, and all groups have the same weight.

    Args:
        scores: (n,) scores, at least one, without NaN.
        level: nominal probability.
        groups: (n,) labels of rows with correlated scores; by default each row is its own group.
    """
    weights = np.ones(len(scores)) if groups is None else group_weights(groups)
    return weighted_quantile(scores, weights, level * (1.0 + 1.0 / weights.sum()))


def weighted_quantile(
    values: Float64[np.ndarray, " n"], weights: Float64[np.ndarray, " n"], level: float
) -> float:
    """The least value at which the cumulative weight reaches a share of the total weight.

    Args:
        values: (n,) values, at least one, without NaN.
        weights: (n,) non-negative weights.
        level: share of the total weight; from 1 on, the largest value is returned.
    """
    level = min(level - _ROUNDING, 1.0)
    return float(np.quantile(values, level, weights=weights, method="inverted_cdf"))


def group_weights(
    groups: Text[np.ndarray, " n"] | Int[np.ndarray, " n"],
) -> Float64[np.ndarray, " n"]:
    """Weights of n rows that add up to 1 in every group, shape (n,)."""
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / counts[group])


def student_quantile(
    freedom: float | Float64[np.ndarray, " n"], coverage: float
) -> Float64[np.ndarray, " *n"]:
    """Half-width of a Student t interval in standard deviations.

    Args:
        freedom: degrees of freedom of the estimated variance, a number or (n,).
        freedom: degrees of freedom of the estimated variance, a number or (n,).
        coverage: nominal coverage of the two-sided interval.
    """
    from scipy.special import stdtrit

    return np.asarray(stdtrit(freedom, 0.5 + coverage / 2.0), dtype=np.float64)


Strata = Sequence[str] | Text[np.ndarray, " n"]
POOLED = "all"
"""Stratum of the quantiles of all residuals."""
FEWEST = 30
"""Number of residuals from which a stratum has its own quantiles."""
UNCALIBRATED = (-1.0, 1.0)
"""Log bounds without any residuals: a factor of e either way."""


@dataclass(frozen=True)
class LogQuantiles:
    """Lower and upper quantile of log(measured / predicted) per stratum.

    Attributes:
        bounds: stratum -> (low, high); always contains `all`, which serves unlisted strata.
        coverage: nominal share of measured values within the bounds.
    """

    bounds: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: {POOLED: UNCALIBRATED}
    )
    coverage: float = LEVEL

    @classmethod
    def of(
        cls,
        residuals: Float64[np.ndarray, " n"],
        strata: Text[np.ndarray, " n"] | None = None,
        coverage: float = 0.9,
        groups: Text[np.ndarray, " n"] | None = None,
    ) -> "LogQuantiles":
        """Quantiles per stratum with the finite-sample correction of split conformal prediction.

        Without `groups` the correction counts rows, although the rows of a held-out group are
        correlated. With `groups` and fewer than 19 of them, 90 % intervals extend to the largest
        residual of any row, so pass groups only where there are many more.

        Args:
            residuals: n values of log(measured / predicted) on held-out groups, or n multiples of
                a scale; NaN is ignored.
            strata: n labels; strata with fewer than `FEWEST` rows use the pooled quantiles, as do
                all rows by default.
            coverage: nominal coverage of the interval.
            groups: n labels of rows that count and weigh as one.
        """
        known = ~np.isnan(residuals)
        rows = {} if strata is None else {str(s): known & (strata == s) for s in np.unique(strata)}
        rows = {stratum: members for stratum, members in rows.items() if members.sum() >= FEWEST}
        bounds = {
            stratum: _bounds(
                residuals[members], coverage, None if groups is None else groups[members]
            )
            for stratum, members in {POOLED: known, **rows}.items()
        }
        return cls(bounds, coverage)

    def log_ends(self, strata: Strata) -> Float64[np.ndarray, "n 2"]:
        """Lower and upper log bound of n rows, shape (n, 2); each interval contains 0."""
        labels = strata.tolist() if isinstance(strata, np.ndarray) else strata
        places = {label: place for place, label in enumerate(dict.fromkeys(labels))}
        ends = [self.bounds.get(label, self.bounds[POOLED]) for label in places]
        around = np.array([(min(low, 0.0), max(high, 0.0)) for low, high in ends]).reshape(-1, 2)
        return np.asarray(around[[places[label] for label in labels]])

    def around(
        self,
        values: Float64[np.ndarray, " n"],
        strata: Strata,
        scale: Float64[np.ndarray, " n"] | float = 1.0,
    ) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
        """Bounds around n predicted values, shapes (n,); each interval contains its value.

        Args:
            values: (n,) predicted values.
            strata: n labels.
            scale: (n,) scale by which the residuals were divided.
        """
        return _around(values, self.log_ends(strata), scale)


@dataclass(frozen=True)
class Intervals:
    """Quantiles for devices inside and outside the training set.

    Attributes:
        seen: quantiles on held-out groups (families, shapes), on devices in the training set.
        unseen: quantiles on held-out devices.
    """

    seen: LogQuantiles
    unseen: LogQuantiles = field(default_factory=LogQuantiles)

    def log_ends(
        self, strata: Strata, seen_device: Bool[np.ndarray, " n"]
    ) -> Float64[np.ndarray, "n 2"]:
        """Lower and upper log bound of n rows, shape (n, 2); each interval contains 0.

        Args:
            strata: n labels.
            seen_device: (n,) whether the device is in the training set.
        """
        ends = self.seen.log_ends(strata), self.unseen.log_ends(strata)
        return np.where(seen_device[:, None], *ends)

    def around(
        self,
        values: Float64[np.ndarray, " n"],
        strata: Strata,
        seen_device: Bool[np.ndarray, " n"],
        scale: Float64[np.ndarray, " n"] | float = 1.0,
    ) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
        """Bounds around n predicted values, shapes (n,).

        Args:
            values: (n,) predicted values.
            strata: n labels.
            seen_device: (n,) whether the device is in the training set.
            scale: (n,) scale by which residuals on devices in the training set were divided; bounds
                for other devices are not scaled.
        """
        return _around(
            values, self.log_ends(strata, seen_device), np.where(seen_device, scale, 1.0)
        )


def _around(
    values: Float64[np.ndarray, " n"],
    log_ends: Float64[np.ndarray, "n 2"],
    scale: Float64[np.ndarray, " n"] | float,
) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
    low, high = values * np.exp(log_ends.T * scale)
    return low, high


def _bounds(
    residuals: Float64[np.ndarray, " n"], coverage: float, groups: Text[np.ndarray, " n"] | None
) -> tuple[float, float]:
    """Conformal quantiles of both tails; `UNCALIBRATED` without residuals."""
    if not len(residuals):
        return UNCALIBRATED
    level = 0.5 + coverage / 2.0
    low, high = (conformal_quantile(sign * residuals, level, groups) for sign in (-1.0, 1.0))
    return -low, high
