"""How far off answers about jobs under power limits are, measured on devices and jobs left out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.conformal.intervals import POOLED, LogQuantiles, held_out_folds
from forerun.models.domain.feature_range import sheet
from forerun.models.power.limit_response import ENERGY, POWER, TIME
from forerun.models.prediction import Predictions

Column = NDArray[np.float64]
SHOTS: Final = (8, 20, 40)
DRAWS: Final = 4
FOLDS: Final = 4
UNSEEN_AT_LEAST: Final[Mapping[str, float]] = {
    POWER: float(np.log(1.5)),
    TIME: float(np.log(2.5)),
    ENERGY: float(np.log(3.0)),
}
"""Of a device of which nothing is known: a handful of teaching devices may agree by chance."""


class Calibratable(Protocol):
    """What is asked of a predictor that errors are measured on."""

    def fitted_on(self, rows: Measurements) -> "Calibratable":
        """Fitted on these rows alone."""
        ...

    def adapt(self, measurements: Measurements) -> "Calibratable":
        """Shown these rows of a device."""
        ...

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Answers, power and time among them."""
        ...

    def stratum(self, query: Query) -> str:
        """Stratum of the error."""
        ...


WIDER: Final = 1.1
"""Of an adapted device's interval: it comes from devices taught by one fewer, few as they are."""

HeldOutResiduals = tuple[NDArray[np.str_], Mapping[str, Column]]
"""Strata of n rows, and metric -> log(measured / answered)."""


def calibrate(fitted: Calibratable, rows: Measurements, seed: int) -> dict[str, LogQuantiles]:
    """Quantiles by stratum for power, time and energy.

    Args:
        fitted: on all of these rows.
        rows: what it was fitted on.
        seed: of folds and draws.
    """
    parts = [*_jobs_left_out(fitted, rows, seed), *_devices_left_out(fitted, rows, seed)]
    strata = np.concatenate([part[0] for part in parts])
    found = {}
    for metric in (TIME, POWER, ENERGY):
        missed = np.concatenate([part[1][metric] for part in parts])
        quantiles = LogQuantiles.of(missed, strata)
        bounds = dict(quantiles.bounds)
        low, high = bounds.get("unseen", bounds[POOLED])
        least = UNSEEN_AT_LEAST[metric]
        for stratum in [name for name in bounds if name.startswith("adapted")]:
            bounds[stratum] = (WIDER * bounds[stratum][0], WIDER * bounds[stratum][1])
        bounds["unseen"] = (min(low, -least), max(high, least))
        found[metric] = replace(quantiles, bounds=bounds)
    return found


def _jobs_left_out(
    fitted: Calibratable, rows: Measurements, seed: int
) -> Iterator[HeldOutResiduals]:
    """A job and batch size of a device that stays."""
    groups = [f"{sheet(q.device)}/{getattr(q.workload, 'settings', '')}" for q in rows.queries]
    for held in held_out_folds(np.array(groups, dtype=np.str_), FOLDS, seed):
        if held.all():
            continue
        without = fitted.fitted_on(rows.take(~held))
        yield _residuals(without, rows.take(held))


def _devices_left_out(
    fitted: Calibratable, rows: Measurements, seed: int
) -> Iterator[HeldOutResiduals]:
    """A device of which nothing is known, then some of its rows drawn at random."""
    keys = np.array([str(sheet(query.device)) for query in rows.queries], dtype=np.str_)
    if len(np.unique(keys)) < 2:
        return
    random = np.random.default_rng(seed)
    for key in np.unique(keys):
        away, here = fitted.fitted_on(rows.take(keys != key)), rows.take(keys == key)
        yield _residuals(away, here)
        for shots in SHOTS:
            for _ in range(DRAWS):
                shown = np.zeros(len(here), dtype=np.bool_)
                shown[random.permutation(len(here))[:shots]] = True
                if not shown.all():
                    yield _residuals(away.adapt(here.take(shown)), here.take(~shown))


def _residuals(fitted: Calibratable, rows: Measurements) -> HeldOutResiduals:
    answers = fitted.predict(rows.queries)
    power, time = rows.values[POWER], rows.values[TIME]
    measured = {POWER: power, TIME: time, ENERGY: power * time / 1e3}
    strata = np.array([fitted.stratum(query) for query in rows.queries], dtype=np.str_)
    return strata, {m: np.log(measured[m] / answers.values[m]) for m in measured}
