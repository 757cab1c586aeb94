"""Ingestion checks of a user's rows: impossible or contradictory values, duplicates, units."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.errors import BadTable
from forerun.data.own_tables.tidy import Description, text_keys
from forerun.data.quality import FASTER, Quantities, check, with_findings

if TYPE_CHECKING:
    import pandas as pd

CONFLICT: Final = 2.0
"""Ratio of the largest to the smallest time of one question from which on rows contradict."""
TOO_MANY: Final = 0.5
"""Share of the times that may be impossible before the unit of the column is doubted."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the devices of n rows can do; NaN where it is not known.

    Attributes:
        bound_ms: (n,) least time of each row.
        tdp_w: (n,) design power.
        memory_mib: (n,) memory of the device.
    """

    bound_ms: Column
    tdp_w: Column
    memory_mib: Column


def findings_of(
    runs: "pd.DataFrame", description: Description, hardware: Hardware
) -> "pd.DataFrame":
    """Doubtful rows of `runs`, as `forerun.data.quality.check` returns them.

    Raises:
        BadTable: most times are shorter than the hardware allows, so that their unit is wrong, or
            a share is above 1.
    """
    time_ms = _column(runs, "latency_ms")
    _check_units(runs, time_ms, hardware.bound_ms)
    quantities = Quantities(
        time_ms=time_ms,
        bound_ms=hardware.bound_ms,
        power_w=_column(runs, "power_w"),
        tdp_w=hardware.tdp_w,
        energy_j=_column(runs, "energy_j"),
    )
    columns = [*description.question_columns, *description.metrics]
    found = check(runs, quantities, same=[name for name in columns if name in runs])
    memory = _column(runs, "peak_memory_mib")
    if memory is not None:
        over = memory > hardware.memory_mib
        found = with_findings(found, over, "impossible", "more memory than the device has")
    if time_ms is not None:
        keys = text_keys(runs, description.question_columns)
        apart = _contradicting(keys, time_ms)
        why = f"times of the same question differ by more than a factor of {CONFLICT:g}"
        found = with_findings(found, apart, "conflict", why)
    return found


def _column(runs: "pd.DataFrame", name: str) -> Column | None:
    return runs[name].to_numpy(dtype=np.float64) if name in runs else None


def _check_units(runs: "pd.DataFrame", time_ms: Column | None, bound_ms: Column) -> None:
    if "utilisation" in runs and (runs["utilisation"] > 1).any():
        row = int(np.flatnonzero(runs["utilisation"] > 1)[0])
        raise BadTable(
            f"utilisation, row {row + 1}, is {runs['utilisation'].iloc[row]:g}, above 1; "
            "--map NAME=utilization_percent reads a column in percent."
        )
    if time_ms is None:
        return
    known = np.isfinite(time_ms) & np.isfinite(bound_ms) & (bound_ms > 0)
    fast = known & (bound_ms > FASTER * time_ms)
    if known.any() and fast.sum() > TOO_MANY * known.sum():
        row = int(np.flatnonzero(fast)[0])
        raise BadTable(
            f"{fast.sum()} of {known.sum()} times are shorter than the hardware allows (row "
            f"{row + 1}: {time_ms[row]:.3g} ms, at least {bound_ms[row]:.3g} ms): is the unit "
            "right? --map NAME=latency_s or --map NAME=latency_us states it."
        )


def _contradicting(
    keys: "np.ndarray[tuple[int], np.dtype[np.str_]]", time_ms: Column
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Rows of questions whose largest time is more than `CONFLICT` times the smallest, (n,)."""
    _, group = np.unique(keys, return_inverse=True)
    largest, smallest = np.zeros(group.max() + 1), np.full(group.max() + 1, np.inf)
    known = np.isfinite(time_ms)
    np.maximum.at(largest, group[known], time_ms[known])
    np.minimum.at(smallest, group[known], time_ms[known])
    return known & (largest > CONFLICT * smallest)[group]
