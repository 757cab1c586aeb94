"""A picture of conditional coverage: the share of measured values inside intervals, by width."""

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from forerun.training.plots import COLOURS, drawing

GROUPS = 10
NOMINAL = 90.0


def calibration(
    path: Path,
    measured: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    title: str = "Coverage of 90 % intervals by their width",
) -> Path:
    """Coverage of prediction intervals in up to ten equal groups of rows, from narrow to wide.

    The bars of well calibrated intervals all reach the nominal 90 %.

    Args:
        path: PNG file to write.
        measured: (n,) measured values.
        low: (n,) lower ends in the same unit; rows with NaN are left out.
        high: (n,) upper ends.
        title: heading.

    Raises:
        ValueError: no row has an interval.
        MissingExtra: matplotlib is not installed.
    """
    truth, lower, upper = (np.asarray(c, dtype=np.float64) for c in (measured, low, high))
    known = np.isfinite(truth) & np.isfinite(lower) & np.isfinite(upper) & (lower > 0)
    if not known.any():
        raise ValueError("calibration needs a row with an interval")
    inside = ((lower <= truth) & (truth <= upper))[known]
    ratio = (upper[known] / lower[known]).astype(np.float64)
    order = np.argsort(ratio, kind="stable")
    parts = [part for part in np.array_split(order, GROUPS) if len(part)]
    shares = [100.0 * float(inside[part].mean()) for part in parts]
    labels = [f"{ratio[part].mean():.2f}" for part in parts]
    with drawing(path, 6.8, 4.4, title) as (axes,):
        places = np.arange(len(parts), dtype=float)
        axes.bar(places, shares, 0.8, color=COLOURS[0])
        axes.axhline(NOMINAL, color="#222222", lw=1, ls=(0, (4, 3)))
        axes.set_xticks(places, labels)
        axes.set(ylim=(0, 104), ylabel="measured values inside (dashed: 90 %)")
        axes.set_xlabel(f"mean ratio high / low of each group of about {len(parts[0]):,} rows")
        axes.yaxis.set_major_formatter("{x:.0f} %")
        axes.grid(visible=False, axis="x")
    return path
