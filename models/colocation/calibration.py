"""Calibration of predictors of co-location on held-out groups: intervals, shrinkage, errors."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from forerun.data.columns import Column, Mask, Names, finite_log
from forerun.data.measurements import Measurements
from forerun.models.colocation.features import METRICS, ColocationRows
from forerun.models.colocation.host_forecast import forecast_queries
from forerun.models.colocation.slowed_class import ClassErrors
from forerun.models.conformal import POOLED, LogQuantiles, out_of_fold

if TYPE_CHECKING:
    from forerun.models.colocation.booster import ColocationBoost


Mode = Literal["known", "profiled", "new"]
"""How a program is known: measured with neighbours, with one load only, or not at all."""
MODES: tuple[Mode, ...] = ("known", "profiled", "new")
HELD_OUT: Mapping[Mode, str] = {"known": "neighbour", "profiled": "family", "new": "family"}
"""Mode -> grouping key whose values are held out to calibrate its intervals."""
POOLED_PROGRAM: Mapping[Mode, str] = {"new": "", "profiled": "profiled "}
"""Mode -> key that stands for the names of all its programs, which share one shrinkage factor."""
PROFILE_RUN = "profile run"
"""Value of the grouping key `profile` for runs from which a program's profile was computed."""
ISOLATED = "none"
"""Value of the grouping key `neighbour` for isolated runs."""
FOLDS = 10
"""Folds of groups that calibration holds out."""
FACTORS = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Candidate shrinkage factors of programs that were measured."""
UNMEASURED_FACTORS = (1.5, 1.25, *FACTORS)
"""Candidates for programs that were not measured. Boosters of absolute errors stay near the median
of their training set, so factors above 1 may be better. Which one is chosen on families held out
within the training set."""
FEWEST_HELD_OUT = 15
"""A program with fewer held-out runs keeps a shrinkage factor of 1."""


def fit_shrinkage(
    programs: Names,
    target: Column,
    middle: Column,
    deviation: Column,
    factors: Sequence[float] = FACTORS,
    fewest: int = FEWEST_HELD_OUT,
) -> dict[str, float]:
    """Factors by which an engine's deviation from a program's median is shrunk.

    The factor of a program minimises the mean absolute error of relative speed on held-out runs.
    For a program that nothing slows, whose deviations are noise, that is near 0.

    Args:
        programs: key of each run, shape (n,).
        target: measured log relative speeds, shape (n,).
        middle: median of each run's program, shape (n,).
        deviation: held-out predictions less these medians, shape (n,).
        factors: candidates.
        fewest: a program with fewer held-out runs has no factor.

    Returns:
        Program -> factor.
    """
    shrinkage = {}
    for program in np.unique(programs):
        runs = (programs == program) & np.isfinite(target + middle + deviation)
        if runs.sum() >= fewest:
            speeds = (np.exp(middle[runs] + factor * deviation[runs]) for factor in factors)
            errors = [np.abs(speed - np.exp(target[runs])).mean() for speed in speeds]
            shrinkage[str(program)] = factors[int(np.argmin(errors))]
    return shrinkage


def uninformative_runs(rows: ColocationRows, measured: Measurements, mode: Mode) -> Mask:
    """Runs that the calibration of a mode leaves out, because the inputs were computed from them.

    Isolated runs give `cpu_spread`, and runs next to one load give `log_p_with_load`; both are
    inputs for programs that were not measured with neighbours.

    Returns:
        A mask of shape (n,).
    """
    if mode == "known":
        return np.zeros(len(rows), dtype=np.bool_)
    runs: Mask = measured.group("neighbour") == ISOLATED
    if mode == "profiled":
        runs |= (measured.group("profile") == PROFILE_RUN) | np.isnan(rows.log_p_with_load)
    return runs


FEWEST_PAIRS = 20
"""With fewer runs next to programs that have profiles, forecasts have no intervals of their own."""


def calibrated(
    fitted: "ColocationBoost", rows: ColocationRows, measured: Measurements
) -> tuple[
    dict[tuple[str, Mode], LogQuantiles],
    dict[tuple[str, str], float],
    dict[tuple[str, str], ClassErrors],
]:
    """Interval widths, shrinkage factors, and error rates of the class `slowed`.

    All are measured on neighbours and families that are held out of the training set in turn.

    Args:
        fitted: predictor whose engines are fitted.
        rows: n training rows.
        measured: the same rows with their values and groups.

    Returns:
        `widths`, `shrinkage` and `errors` of `ColocationBase`.
    """
    widths: dict[tuple[str, Mode], LogQuantiles] = {}
    shrinkage: dict[tuple[str, str], float] = {}
    errors: dict[tuple[str, str], ClassErrors] = {}
    colocated = measured.group("neighbour") != ISOLATED
    busy: dict[Mode, tuple[Column, Column]] = {}
    profiled = bool(np.isfinite(rows.log_p_with_load).any())
    waiting_known = np.isfinite(rows.waiting).mean() > 0.5
    for metric in fitted.metrics:
        target = finite_log(measured.column(metric))
        for mode in MODES:
            if mode == "profiled" and not profiled:
                continue
            if metric == "p_wall" and mode in busy and waiting_known:
                predicted, unit = busy[mode][0] + rows.waiting, busy[mode][1]
            else:
                predicted, middle, unit = held_out_predictions(fitted, rows, measured, metric, mode)
                predicted[uninformative_runs(rows, measured, mode)] = np.nan
                keys = rows.programs
                if mode != "known":
                    keys = np.full(len(rows), POOLED_PROGRAM[mode])
                candidates = FACTORS if mode == "known" else UNMEASURED_FACTORS
                factors = fit_shrinkage(keys, target, middle, predicted - middle, candidates)
                shrinkage |= {(metric, program): factor for program, factor in factors.items()}
                factor = np.array([factors.get(str(key), 1.0) for key in keys])
                predicted = middle + factor * (predicted - middle)
                busy |= {mode: (predicted, unit)} if metric == "p_cpu" else {}
            known = mode == "known"
            unit = np.ones(len(rows)) if known else unit
            residuals = (target - predicted) / unit
            if known or np.isfinite(residuals).any():
                width = LogQuantiles.of(residuals, rows.programs if known else None)
                widths[metric, mode] = width
                below, above = width.around(np.ones(len(rows)), rows.programs, unit)
                speeds = np.exp(np.where(colocated, [target, predicted], np.nan))
                rates = ClassErrors.where_wide(speeds[0], speeds[1], above / below)
                errors |= {(metric, mode): rates} if rates else {}
    return widths, shrinkage, errors


def held_out_predictions(
    fitted: "ColocationBoost",
    rows: ColocationRows,
    measured: Measurements,
    metric: str,
    mode: Mode,
    query_rows: ColocationRows | None = None,
    shrinkage: Mapping[tuple[str, str], float] | None = None,
) -> tuple[Column, Column, Column]:
    """Predictions for every row by a fit without the row's group.

    Args:
        fitted: predictor whose settings count.
        rows: n training rows.
        measured: the same rows with their values and groups.
        metric: to predict; for `p_wall` the engine of CPU time is fitted as well.
        mode: of the programs, which gives the groups to hold out.
        query_rows: the same rows with other windows, where these are to be predicted.
        shrinkage: factors to apply; none by default.

    Returns:
        Log relative speed, median of the program in it, and `interval_units`, shapes (n,); NaN
        where no group could be held out.
    """
    groups = measured.group(HELD_OUT[mode])
    target = finite_log(measured.column(metric))
    lighter = replace(fitted, bags=1)
    if mode == "new":
        rows = rows.unprofiled()
    query_rows = rows if query_rows is None else query_rows
    metrics = METRICS if metric == "p_wall" else [metric]

    def predict(held: Mask) -> tuple[Column, Column, Column] | float:
        if not np.isfinite(target[~held]).any():
            return np.nan
        part = lighter.without_intervals(rows.take(~held), measured.take(~held), metrics)
        part = replace(part, shrinkage=dict(shrinkage or {}))
        held_rows = query_rows.take(held)
        middle = part.program_levels(held_rows, metric)[0] + held_rows.reference
        predicted = part.predict_log(held_rows, [metric])[metric]
        return predicted, middle, part.interval_units(held_rows)

    predicted, middle, unit = out_of_fold(groups, predict, folds=FOLDS, seed=fitted.seed, columns=3)
    return predicted, middle, unit


def calibrated_forecasts(
    fitted: "ColocationBoost", rows: ColocationRows, measured: Measurements
) -> tuple[dict[str, tuple[float, float]], dict[tuple[str, str], ClassErrors]]:
    """Calibration of forecasts: the host's metrics are combined from profiles, not measured.

    Pairs of programs with profiles are predicted as if before they ran together, by engines and
    mixing weights that were fitted without the neighbour.

    Returns:
        `ahead` and the entries of `errors` for forecasts, of `ColocationBase`; empty with fewer
        than FEWEST_PAIRS pairs.
    """
    if "neighbour" not in measured.groups:
        return {}, {}
    cpus = measured.groups.get("cpus_shared", np.full(len(measured), "inf")).astype(np.float64)
    neighbours = measured.groups["neighbour"]
    pairs, queries = forecast_queries(measured.queries, neighbours, cpus, fitted.idle)
    if len(pairs) < FEWEST_PAIRS:
        return {}, {}
    forecast = ColocationRows.from_queries(queries, fitted.idle)
    ends: dict[str, tuple[float, float]] = {}
    errors: dict[tuple[str, str], ClassErrors] = {}
    for metric in fitted.metrics:
        predicted, _, _ = held_out_predictions(
            fitted, rows, measured, metric, "known", forecast, fitted.shrinkage
        )
        _, spread, _ = fitted.levels[metric].estimate(rows.programs, rows.sensitivity_proxies)
        target = finite_log(measured.column(metric))
        residuals = ((target - predicted) / spread)[pairs]
        ends[metric] = LogQuantiles.of(residuals).bounds[POOLED]
        rates = ClassErrors.of(np.exp(target[pairs]), np.exp(predicted[pairs]))
        errors |= {(metric, "ahead"): rates} if rates else {}
    return ends, errors
