"""Which workloads to measure next on a device."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.data.query import Query
from forerun.models.baselines.roofline import Roofline
from forerun.models.predictor import Predictor, Suggesting


def suggested(
    predictor: Predictor, candidates: Sequence[Query], measured: Sequence[Query], count: int
) -> list[int]:
    """Positions of the candidates to measure, the most telling first.

    The predictor chooses where it knows how (`Suggesting`); else they are spread over bound and
    mix of operators, away from what was measured and from one another.

    Args:
        predictor: in use.
        candidates: not measured yet; all answered by the predictor.
        measured: on this device, before.
        count: how many to choose; fewer where there are fewer candidates.
    """
    count = min(count, len(candidates))
    if not count:
        return []
    if isinstance(predictor, Suggesting):
        return list(predictor.suggest(candidates, count))[:count]
    points = _points([*candidates, *measured])
    return _spread(points[: len(candidates)], points[len(candidates) :], count)


def _points(queries: Sequence[Query]) -> NDArray[np.float64]:
    """Log of the bound, and shares of operator classes in it; each axis as wide as it varies."""
    said = Roofline().predict(queries)
    classes = sorted({name for shares in said.breakdowns_ms for name in shares})
    points = np.zeros((len(queries), 1 + len(classes)))
    points[:, 0] = np.log(np.maximum(said.values["latency_ms"], 1e-9))
    points[:, 0] /= max(float(points[:, 0].std()), 1e-9)
    for row, shares in enumerate(said.breakdowns_ms):
        total = sum(shares.values()) or 1.0
        for name, share in shares.items():
            points[row, 1 + classes.index(name)] = 2.0 * share / total
    return points


def _spread(points: NDArray[np.float64], taken: NDArray[np.float64], count: int) -> list[int]:
    """Each the farthest from all taken before; the first the nearest to the middle."""
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
