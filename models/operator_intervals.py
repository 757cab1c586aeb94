"""Intervals of kernels: from larger work than was taught, and from devices held out in turn."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.models.calibration import Intervals, LogQuantiles
from forerun.models.operator_rows import OperatorRows

Column = NDArray[np.float64]
Missed = Callable[[NDArray[np.bool_]], Iterator[tuple[str, str, Column]]]
LARGEST = 0.3
"""Share of each device's work that its smaller work must foresee."""

_EACH = 2000


def calibrate(rows: OperatorRows, missed: Missed) -> Intervals:
    """Seen devices: the largest work of each, judged by its smaller. Unseen: one device left out.

    Args:
        rows: training rows.
        missed: mask of rows held out -> (family, device, log errors) by a predictor fitted on the
            others.
    """
    large = np.zeros(len(rows.device), dtype=np.bool_)
    for owner, features, _ in rows.parts.values():
        for device in np.unique(rows.device[owner]):
            mine = rows.device[owner] == device
            roofline_ms = features.roofline_ms[mine]
            large[owner[mine]] = roofline_ms > np.quantile(roofline_ms, 1.0 - LARGEST)
    seen = list(missed(large))
    devices = np.unique(rows.device)
    if len(devices) == 1:
        return Intervals(_quantiles(seen), _quantiles(seen))
    unseen = [found for device in devices for found in missed(rows.device == device)]
    return Intervals(_quantiles(seen), _quantiles(unseen))


def _quantiles(missed: Sequence[tuple[str, str, Column]]) -> LogQuantiles:
    """Every device counts alike: the same number of evenly spaced quantiles of its errors."""
    levels = (np.arange(_EACH) + 0.5) / _EACH
    errors = [np.quantile(r, levels) for _, _, r in missed]
    strata = [np.full(_EACH, family) for family, _, _ in missed]
    if not errors:
        return LogQuantiles.of(np.zeros(0), np.zeros(0, dtype=np.str_))
    return LogQuantiles.of(np.concatenate(errors), np.concatenate(strata))
