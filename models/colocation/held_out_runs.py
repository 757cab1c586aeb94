"""What is held out to see how far answers of co-location are off, and which part of them counts."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.models.colocation.features import ColocationRows, Column

Mode = Literal["known", "profiled", "new"]
MODES: tuple[Mode, ...] = ("known", "profiled", "new")
HELD_OUT: Mapping[Mode, str] = {"known": "neighbour", "profiled": "family", "new": "family"}
"""Grouping key whose values are held out where intervals are measured."""
ANYONE: Mapping[Mode, str] = {"new": "", "profiled": "profiled "}
"""In place of a program's name: all that were not measured, or beside one load alone."""
PROFILE_RUN = "profile run"
"""Value of the grouping key `profile` of runs that a program's profile is made of."""
ISOLATED = "none"
"""Value of the grouping key `neighbour` of runs alone."""
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
UNMEASURED_SHARES = (1.5, 1.25, *SHARES)
"""Of programs that were not measured: boosters of absolute errors stay near the median of what they
saw, so more than their answer may be nearest. Which share counts is chosen on families held out
within the training set."""
FEWEST_TRUSTED = 15
"""Runs held out from which on a program's share is chosen."""


def log_p(measured: Measurements, metric: str) -> Column:
    """Logarithm of a metric, shape (n,); NaN where it was not measured."""
    values = measured.values.get(metric, np.full(len(measured), np.nan))
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(values)
    return np.where(np.isfinite(logs), logs, np.nan)


def trust_of(
    programs: NDArray[np.str_],
    target: Column,
    answer: Column,
    middle: Column,
    shares: Sequence[float] = SHARES,
) -> dict[str, float]:
    """Share of each program's answer away from its level that P was nearest with, held out.

    What nothing slows is all noise: there an engine that answers its level is better.
    """
    found = {}
    for program in np.unique(programs):
        mine = (programs == program) & np.isfinite(target + answer + middle)
        if mine.sum() < FEWEST_TRUSTED:
            continue
        truth, away = np.exp(target[mine]), (answer - middle)[mine]
        missed = [np.abs(np.exp(middle[mine] + s * away) - truth).mean() for s in shares]
        found[str(program)] = shares[int(np.argmin(missed))]
    return found


def groups_of(measured: Measurements, key: str) -> NDArray[np.str_]:
    """Values of a grouping key; every row a group of its own where there is no such key."""
    return measured.groups.get(key, np.arange(len(measured)).astype(np.str_))


def told(rows: ColocationRows, measured: Measurements, mode: Mode) -> NDArray[np.bool_]:
    """Runs that tell nothing of answers in a mode: those that its profiles are made of.

    How a program's runs alone scatter is a yardstick, and so is what it did beside one load.
    """
    if mode == "known":
        return np.zeros(len(rows), dtype=np.bool_)
    found: NDArray[np.bool_] = groups_of(measured, "neighbour") == ISOLATED
    if mode == "profiled":
        found |= (groups_of(measured, "profile") == PROFILE_RUN) | np.isnan(rows.beside)
    return found
