"""Prediction intervals of training jobs, calibrated on held-out jobs and held-out devices.

Each held-out device is predicted without any of its rows, and after few-shot adaptation to random
support sets of several sizes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from forerun.data.columns import Column, Names
from forerun.data.measurements import Measurements
from forerun.models.conformal import POOLED, LogQuantiles, held_out_folds
from forerun.models.domain.feature_range import sheet
from forerun.models.power.limit_response import ENERGY, POWER, TIME

if TYPE_CHECKING:
    from forerun.models.power.training_jobs import PowerCap

SHOTS: Final = (8, 20, 40)
"""Sizes of the support sets of a held-out device."""
DRAWS: Final = 4
"""Random support sets of each size."""
FOLDS: Final = 4
UNSEEN_AT_LEAST: Final[Mapping[str, float]] = {
    POWER: float(np.log(1.5)),
    TIME: float(np.log(2.5)),
    ENERGY: float(np.log(3.0)),
}
"""Least bounds of |log(measured / predicted)| on a device without measurements: the few devices in
the training set may agree by chance."""


WIDER: Final = 1.1
"""Factor by which intervals of adapted devices are widened.

Their residuals come from fits that lack the held-out device, one of few.
"""

HeldOutResiduals = tuple[Names, Mapping[str, Column]]
"""Strata of n rows, and metric -> (n,) log(measured / predicted)."""


def calibrate(fitted: "PowerCap", rows: Measurements, seed: int) -> dict[str, LogQuantiles]:
    """Metric -> conformal quantiles of the residuals by stratum, for power, time and energy.

    The finite-sample correction counts residuals, several of each row for adapted devices. Devices
    are too few to be counted: `UNSEEN_AT_LEAST` and `WIDER` stand for what so few may hide.

    Args:
        fitted: predictor fitted to all of the rows.
        rows: training rows.
        seed: seed of the folds and of the support sets.
    """
    parts = [*_held_out_jobs(fitted, rows, seed), *_held_out_devices(fitted, rows, seed)]
    strata = np.concatenate([part[0] for part in parts])
    errors = {}
    for metric in (TIME, POWER, ENERGY):
        residuals = np.concatenate([part[1][metric] for part in parts])
        quantiles = LogQuantiles.of(residuals, strata)
        bounds = dict(quantiles.bounds)
        low, high = bounds.get("unseen", bounds[POOLED])
        least = UNSEEN_AT_LEAST[metric]
        for stratum in [name for name in bounds if name.startswith("adapted")]:
            bounds[stratum] = (WIDER * bounds[stratum][0], WIDER * bounds[stratum][1])
        bounds["unseen"] = (min(low, -least), max(high, least))
        errors[metric] = replace(quantiles, bounds=bounds)
    return errors


def _held_out_jobs(fitted: "PowerCap", rows: Measurements, seed: int) -> Iterator[HeldOutResiduals]:
    """Residuals of held-out settings (job and batch size) on devices in the training set."""
    groups = [f"{sheet(q.device)}/{getattr(q.workload, 'settings', '')}" for q in rows.queries]
    for held in held_out_folds(np.array(groups, dtype=np.str_), FOLDS, seed):
        yield _residuals(fitted.fitted_on(rows.take(~held)), rows.take(held))


def _held_out_devices(
    fitted: "PowerCap", rows: Measurements, seed: int
) -> Iterator[HeldOutResiduals]:
    """Residuals on held-out devices, without their rows and after adaptation to support sets."""
    keys = np.array([str(sheet(query.device)) for query in rows.queries], dtype=np.str_)
    random = np.random.default_rng(seed)
    for held in held_out_folds(keys):
        without, own = fitted.fitted_on(rows.take(~held)), rows.take(held)
        yield _residuals(without, own)
        for shots in SHOTS:
            for _ in range(DRAWS):
                support = np.zeros(len(own), dtype=np.bool_)
                support[random.permutation(len(own))[:shots]] = True
                if not support.all():
                    yield _residuals(without.adapt(own.take(support)), own.take(~support))


def _residuals(fitted: "PowerCap", rows: Measurements) -> HeldOutResiduals:
    """Strata and residuals of rows that the predictor was not fitted to."""
    answers = fitted.predict(rows.queries)
    power, time = rows.values[POWER], rows.values[TIME]
    measured = {POWER: power, TIME: time, ENERGY: power * time / 1e3}
    strata = np.array([fitted.stratum(query) for query in rows.queries], dtype=np.str_)
    return strata, {m: np.log(measured[m] / answers.values[m]) for m in measured}
