"""Limits of a prediction about co-location: the sentences, and when each of them holds."""

from collections.abc import Sequence

import numpy as np

from forerun.data.columns import Mask, Names
from forerun.features.host_windows import NAMES, PINNED, natural
from forerun.models.colocation.features import SENSITIVITY_PROXIES, ColocationRows
from forerun.models.colocation.host_forecast import OWN
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.limit import Limit

NEW = "this program was not measured with co-runners: the answer is from all other programs"
SCATTERED = (
    "this program was not measured with co-runners: the answer is from others, by how its CPU "
    "times alone scatter (`cpu_spread`), which tells little where no other guest disturbs"
)
PROFILED = (
    "this program was measured with one co-running load alone: the answer scales with what that "
    "did, and with how its CPU times alone scatter where that is known"
)
UNLIKE_ALL = (
    "this program waits for much more of its time alone than all of the training set: in CPU time "
    "it is taken as not slowed"
)
NO_WINDOW = "no metrics of the host: the answer is the level over all neighbours"


def limits_of(
    rows: ColocationRows,
    modes: Names,
    training_metrics: Sequence[str],
    ranges: FeatureRange | None,
    unlike: Mask,
) -> list[tuple[Limit, ...]]:
    """The limits of each prediction; none for one without limits.

    Args:
        rows: features of n queries.
        modes: modes of the programs, shape (n,).
        training_metrics: host metrics in the training set.
        ranges: of the windows' medians in the training set.
        unlike: programs that were not measured and wait far more than any in the training set,
            shape (n,).
    """
    limits: list[tuple[Limit, ...]] = []
    for row in range(len(rows)):
        scatters = np.isfinite(rows.sensitivity_proxies[row, SENSITIVITY_PROXIES.index("scatter")])
        new = SCATTERED if scatters else NEW
        others = {"new": [new], "profiled": [PROFILED]}.get(str(modes[row]), [])
        transfers = [Limit(line, severity="transfer") for line in others]
        lines = []
        if unlike[row]:
            lines.append(UNLIKE_ALL)
        if not rows.has_window[row]:
            limits.append((*transfers, *map(Limit, lines), Limit(NO_WINDOW)))
            continue
        median = rows.window_statistics[row, 0]
        missing = [name for name in training_metrics if np.isnan(median[NAMES.index(name)])]
        if rows.estimated[row]:
            missing = [name for name in missing if not name.startswith(OWN)]
        # They cannot be measured for a program that is not pinned to a CPU.
        missing = [name for name in missing if not name.startswith(PINNED)]
        if missing:
            lines.append(f"metrics of the host that training had are missing: {len(missing)}")
        outside: tuple[Limit, ...] = ()
        if ranges is not None:
            given = natural(median)[[NAMES.index(name) for name in ranges.names]]
            outside = ranges.outside(given)
        limits.append((*transfers, *map(Limit, lines), *outside))
    return limits
