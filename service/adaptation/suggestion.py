"""Choose which workloads to measure next on a device."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.data.query import Query
from forerun.models.baselines.roofline import Roofline
from forerun.models.predictor import Predictor, Suggesting


def suggested(
    predictor: Predictor, candidates: Sequence[Query], measured: Sequence[Query], count: int
) -> list[int]:
    """Indices of the candidates to measure, the most informative first.

    A predictor that implements `Suggesting` chooses by itself. Otherwise the choice is
    farthest-point sampling over the roofline time and the mix of operators, away
    from measured workloads.

    Args:
        predictor: the predictor in use.
        candidates: n queries that are not measured yet and that the predictor answers.
        measured: queries that were measured on this device.
        count: how many to choose; fewer are returned where there are fewer candidates.
    """
    count = min(count, len(candidates))
    if not count:
        return []
    if isinstance(predictor, Suggesting):
        return list(predictor.suggest(candidates, count))[:count]
    points = _points([*candidates, *measured])
    return _farthest_points(points[: len(candidates)], points[len(candidates) :], count)


def _points(queries: Sequence[Query]) -> NDArray[np.float64]:
    """Standardised log roofline time and shares of operator classes in it, of shape (n, d)."""
    rooflines = Roofline().predict(queries)
    classes = sorted({name for shares in rooflines.breakdowns_ms for name in shares})
    points = np.zeros((len(queries), 1 + len(classes)))
    points[:, 0] = np.log(np.maximum(rooflines.values["latency_ms"], 1e-9))
    points[:, 0] /= max(float(points[:, 0].std()), 1e-9)
    for row, shares in enumerate(rooflines.breakdowns_ms):
        total = sum(shares.values()) or 1.0
        for name, share in shares.items():
            points[row, 1 + classes.index(name)] = 2.0 * share / total
    return points


def _farthest_points(
    points: NDArray[np.float64], taken: NDArray[np.float64], count: int
) -> list[int]:
    """Farthest-point sampling: each point is the farthest from all those taken before.

    Without taken points, the first is the point nearest to the median.
    """
    chosen: list[int] = []
    if len(taken):
        gaps = np.linalg.norm(points[:, None] - taken[None], axis=2).min(axis=1)
    else:
        middle = np.linalg.norm(points - np.median(points, axis=0), axis=1)
        chosen.append(int(middle.argmin()))
        gaps = np.linalg.norm(points - points[chosen[0]], axis=1)
    while len(chosen) < count:
        gaps[chosen] = -1.0
        chosen.append(int(gaps.argmax()))
        gaps = np.minimum(gaps, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return chosen
