"""Intervals and error rates of predictors of co-location, from what was held out of training."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from forerun.data.measurements import Measurements
from forerun.models.colocation.features import METRICS, ColocationRows, Column, Names
from forerun.models.colocation.held_out_runs import (
    ANYONE,
    HELD_OUT,
    ISOLATED,
    MODES,
    SHARES,
    UNMEASURED_SHARES,
    Mode,
    groups_of,
    log_p,
    told,
    trust_of,
)
from forerun.models.colocation.host_forecast import asked_ahead
from forerun.models.colocation.slowed_class import ClassErrors
from forerun.models.conformal.intervals import POOLED, LogQuantiles, held_out_folds

if TYPE_CHECKING:
    from forerun.models.colocation.base import ColocationBase

FEWEST_PAIRS = 20
"""Runs beside programs with profiles from which on intervals of what is to come are measured."""


def calibrated(
    fitted: "ColocationBase", rows: ColocationRows, measured: Measurements
) -> tuple[
    dict[tuple[str, Mode], LogQuantiles],
    dict[tuple[str, str], float],
    dict[tuple[str, str], ClassErrors],
]:
    """Widths, shares of the engines' answers and error rates of the class `slowed`.

    All are measured on neighbours and families held out of the training set.

    Args:
        fitted: predictor whose engines are fitted.
        rows: n training rows.
        measured: the same, with values and groups.

    Returns:
        `widths`, `trust` and `errors` of `ColocationBase`.
    """
    widths: dict[tuple[str, Mode], LogQuantiles] = {}
    trust: dict[tuple[str, str], float] = {}
    errors: dict[tuple[str, str], ClassErrors] = {}
    beside = groups_of(measured, "neighbour") != ISOLATED
    busy: dict[Mode, tuple[Column, Column]] = {}
    profiled = bool(np.isfinite(rows.beside).any())
    waits = np.isfinite(rows.waiting).mean() > 0.5
    for metric in fitted.metrics:
        target = log_p(measured, metric)
        for mode in MODES:
            if mode == "profiled" and not profiled:
                continue
            if metric == "p_wall" and mode in busy and waits:
                answer, unit = busy[mode][0] + rows.waiting, busy[mode][1]
            else:
                answer, middle, unit = held_out(fitted, rows, measured, metric, mode)
                answer[told(rows, measured, mode)] = np.nan
                who = rows.programs if mode == "known" else np.full(len(rows), ANYONE[mode])
                shares = SHARES if mode == "known" else UNMEASURED_SHARES
                mine = trust_of(who, target, answer, middle, shares)
                trust |= {(metric, program): share for program, share in mine.items()}
                kept = np.array([mine.get(str(p), 1.0) for p in who])
                answer = middle + kept * (answer - middle)
                busy |= {mode: (answer, unit)} if metric == "p_cpu" else {}
            unit = np.ones(len(rows)) if mode == "known" else unit
            width = _width((target - answer) / unit, rows.programs, mode)
            if width is not None:
                widths[metric, mode] = width
                below, above = width.around(np.ones(len(rows)), rows.programs.tolist())
                truth, predicted = np.exp(np.where(beside, [target, answer], np.nan))
                rates = ClassErrors.where_wide(truth, predicted, (above / below) ** unit)
                errors |= {(metric, mode): rates} if rates else {}
    return widths, trust, errors


def held_out(
    fitted: "ColocationBase",
    rows: ColocationRows,
    measured: Measurements,
    metric: str,
    mode: Mode,
    asked: ColocationRows | None = None,
    trust: Mapping[tuple[str, str], float] | None = None,
) -> tuple[Column, Column, Column]:
    """Log P, the level and the unit of each program, by what did not see a row's group.

    `asked` are the same rows with other windows, where these are to be answered; `trust` counts
    where it is given. Wall time needs what answers CPU time, too.
    """
    groups = groups_of(measured, HELD_OUT[mode])
    target = log_p(measured, metric)
    answer, middle, unit = (np.full(len(rows), np.nan) for _ in range(3))
    lighter = fitted.lighter()
    if mode == "new":
        rows = rows.unprofiled()
    asked = rows if asked is None else asked
    for held in held_out_folds(groups, fitted.folds, fitted.seed):
        if held.all() or not np.isfinite(target[~held]).any():
            continue
        part = measured.take(~held)
        metrics = METRICS if metric == "p_wall" else [metric]
        part_fitted = lighter.without_intervals(rows.take(~held), part, metrics)
        without = replace(part_fitted, trust=dict(trust or {}))
        mine = asked.take(held)
        answer[held], _ = without.in_logarithms(mine, metric)
        middle[held] = without.program_levels(mine, metric)[0] + mine.reference
        unit[held] = without.interval_units(mine)
    return answer, middle, unit


def calibrated_ahead(
    fitted: "ColocationBase", rows: ColocationRows, measured: Measurements
) -> tuple[dict[str, tuple[float, float]], dict[tuple[str, str], ClassErrors]]:
    """What is missed on runs beside programs with profiles, when asked before they meet.

    By engines, and by weights of what adds up, that did not see the neighbour; and how often
    the class was wrong.
    """
    if not fitted.looks_ahead or "neighbour" not in measured.groups:
        return {}, {}
    cpus = measured.groups.get("cpus_shared", np.full(len(measured), "inf")).astype(np.float64)
    neighbours = measured.groups["neighbour"]
    pairs, coming = asked_ahead(measured.queries, neighbours, cpus, fitted.idle)
    if len(pairs) < FEWEST_PAIRS:
        return {}, {}
    forecast = ColocationRows.of(coming, fitted.idle)
    found: dict[str, tuple[float, float]] = {}
    errors: dict[tuple[str, str], ClassErrors] = {}
    for metric in fitted.metrics:
        answer, _, _ = held_out(fitted, rows, measured, metric, "known", forecast, fitted.trust)
        _, spread, _ = fitted.levels[metric].rows(rows.programs, rows.yardsticks)
        target = log_p(measured, metric)
        missed = ((target - answer) / spread)[pairs]
        found[metric] = LogQuantiles.pooled(missed).bounds[POOLED]
        rates = ClassErrors.of(np.exp(target[pairs]), np.exp(answer[pairs]))
        errors |= {(metric, "ahead"): rates} if rates else {}
    return found, errors


def _width(missed: Column, programs: Names, mode: Mode) -> LogQuantiles | None:
    """Quantiles of what was missed: by program of known ones, else pooled; None of nothing."""
    if mode == "known":
        return LogQuantiles.of(missed, programs)
    return LogQuantiles.pooled(missed) if np.isfinite(missed).any() else None
