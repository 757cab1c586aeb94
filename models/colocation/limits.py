"""What an answer about co-location says of its own limits."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.data.query import Query
from forerun.features.host_windows import NAMES, PINNED, natural
from forerun.models.colocation.features import YARDSTICKS, ColocationRows, Names, colocation_of
from forerun.models.colocation.host_forecast import OWN
from forerun.models.domain.feature_range import FeatureRange

NEW = "this program was not measured beside neighbours: the answer is from all others"
SCATTERED = (
    "this program was not measured beside neighbours: the answer is from others, by how its CPU "
    "times alone scatter (`cpu_spread`), which tells little where no other guest disturbs"
)
PROFILED = (
    "this program was measured beside one load alone: the answer scales with what that did, and "
    "with how its CPU times alone scatter where that is known"
)
UNLIKE_ALL = (
    "this program waits for much more of its time alone than all of the training set: in CPU time "
    "it is taken as not slowed"
)
NO_WINDOW = "no metrics of the host: the answer is the level over all neighbours"


def limits_of(
    queries: Sequence[Query],
    rows: ColocationRows,
    modes: Names,
    training_metrics: Sequence[str],
    ranges: FeatureRange | None,
    unlike: NDArray[np.bool_],
) -> list[tuple[str, ...]]:
    """Lines for each answer; none where nothing limits it.

    Args:
        queries: n questions.
        rows: the same as rows.
        modes: n modes of the programs.
        training_metrics: metrics of the host that training had.
        ranges: of the windows' medians in training.
        unlike: n flags, programs that were not measured and wait more than any in training.
    """
    found = []
    for row, query in enumerate(queries):
        scatters = np.isfinite(rows.yardsticks[row, YARDSTICKS.index("scatter")])
        new = SCATTERED if scatters else NEW
        lines = {"new": [new], "profiled": [PROFILED]}.get(str(modes[row]), [])
        if unlike[row]:
            lines.append(UNLIKE_ALL)
        if not rows.seen[row]:
            found.append((*lines, NO_WINDOW))
            continue
        median = rows.found[row, 0]
        lost = [name for name in training_metrics if np.isnan(median[NAMES.index(name)])]
        if colocation_of(query).estimated:
            lost = [name for name in lost if not name.startswith(OWN)]
        # Of a program that is pinned to no CPU nobody can tell them.
        lost = [name for name in lost if not name.startswith(PINNED)]
        if lost:
            lines.append(f"metrics of the host that training had are missing: {len(lost)}")
        if ranges is not None:
            given = natural(median)[[NAMES.index(name) for name in ranges.names]]
            lines += ranges.outside(given)
        found.append(tuple(lines))
    return found
