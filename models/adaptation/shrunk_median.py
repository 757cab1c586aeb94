"""A correction for each program, application or suite: its median residual, shrunk towards zero."""

import numpy as np

from forerun.data.columns import Column, Names, rows_by

PRIOR_ROWS = 3.0
"""Pseudo-observations without an error that shrink a correction towards zero."""


def shrunk_medians(
    residuals: Column, strata: Names, prior_rows: float = PRIOR_ROWS
) -> dict[str, float]:
    """Stratum -> median of its m residuals times m / (m + `prior_rows`).

    Args:
        residuals: (n,) log(measured / predicted); NaN is left out.
        strata: n labels; one without a residual has no correction.
        prior_rows: pseudo-observations.
    """
    known = np.isfinite(residuals)
    return {
        stratum: len(rows) / (len(rows) + prior_rows) * float(np.median(residuals[known][rows]))
        for stratum, rows in rows_by(strata[known].tolist()).items()
    }
