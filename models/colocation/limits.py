"""Limits of a prediction about co-location: the sentences, and when each of them holds."""

from collections.abc import Sequence

import numpy as np

from forerun.data.columns import Column, Mask, Names, groups_of
from forerun.features.host_windows import NAMES, PINNED, missing_metrics, natural
from forerun.models.colocation.features import SCATTER, SENSITIVITY_PROXIES, ColocationRows
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
    scatters = np.isfinite(rows.sensitivity_proxies[:, SENSITIVITY_PROXIES.index(SCATTER)])
    programs = zip(modes.tolist(), scatters.tolist(), unlike.tolist(), strict=True)
    windows = list(zip(rows.window_of.tolist(), rows.estimated.tolist(), strict=True))
    median = rows.window_statistics[:, 0]
    of_window = {
        window: _of_window(median[same[0]], window[1], training_metrics, ranges)
        for window, same in groups_of(windows).items()
    }
    pairs = list(zip(programs, windows, strict=True))
    of_pair = {(p, w): (*_of_program(*p), *of_window[w]) for p, w in dict.fromkeys(pairs)}
    return [of_pair[pair] for pair in pairs]


def _of_program(mode: str, scatters: bool, unlike: bool) -> tuple[Limit, ...]:
    """Limits of a program that was not measured with neighbours."""
    new = SCATTERED if scatters else NEW
    lines = {"new": (new,), "profiled": (PROFILED,)}.get(mode, ())
    transfers = (Limit(line, severity="transfer") for line in lines)
    return (*transfers, *((Limit(UNLIKE_ALL),) if unlike else ()))


def _of_window(
    median: Column, estimated: bool, training_metrics: Sequence[str], ranges: FeatureRange | None
) -> tuple[Limit, ...]:
    """Limits by the metrics of a host that are missing, or outside the training range.

    Args:
        median: of each metric over time, shape (len(NAMES),).
        estimated: whether the window is a forecast, which has no metrics of a single program.
        training_metrics: host metrics in the training set.
        ranges: of the windows' medians in the training set.
    """
    if np.isnan(median).all():
        return (Limit(NO_WINDOW),)
    # Those of a pinned program cannot be measured for one that is not pinned to a CPU.
    never = OWN if estimated else PINNED
    missing = missing_metrics(median, [n for n in training_metrics if not n.startswith(never)])
    line = f"metrics of the host that training had are missing: {len(missing)}"
    lacking = (Limit(line),) if missing else ()
    if ranges is None:
        return lacking
    given = natural(median)[[NAMES.index(name) for name in ranges.names]]
    return (*lacking, *ranges.outside(given))
