"""Which runs are held out to calibrate co-location predictors, and shrinkage fitted on them."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from forerun.data.columns import Column, Mask, Names
from forerun.data.measurements import Measurements
from forerun.models.colocation.features import ColocationRows

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
