"""Baselines from earlier rounds: the median of the same configuration, and the nearest row."""

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.models.benchmark_suites.history_features import device_counts, history_rows, is_stream

Column = NDArray[np.float64]
NEAREST_KEYS = ("scenario", "base", "device", "model", "part", "kind")


def earlier_rounds(train: Measurements, held_out: Measurements, metric: str) -> dict[str, Column]:
    """Baselines of n held-out rows: name -> predictions, shape (n,), NaN where there is none.

    `median` is the median of the same model, scenario and accelerator, scaled by the number of
    devices (latency and energy are not scaled). `median_as_reported` is the same without converting
    tokens to samples. `nearest` is the row that shares most keys, scaled in the same way.
    """
    theirs = _scale(held_out, metric)
    values = train.values[metric] / _scale(train, metric)
    found = {"median": _medians(train, held_out, values) * theirs}
    if metric == "samples_per_s":
        counted, mine = (rows.groups["counted_in"].astype(np.float64) for rows in (train, held_out))
        found["median_as_reported"] = _medians(train, held_out, values * counted) * theirs / mine
    measured = np.isfinite(values)
    found["nearest"] = _nearest(train.take(measured), held_out, values[measured]) * theirs
    return found


def _medians(train: Measurements, held_out: Measurements, values: Column) -> Column:
    groups: dict[str, list[float]] = defaultdict(list)
    for key, value in zip(train.groups["question"].tolist(), values.tolist(), strict=True):
        if np.isfinite(value):
            groups[key].append(value)
    medians = {key: float(np.median(mine)) for key, mine in groups.items()}
    return np.array([medians.get(key, np.nan) for key in held_out.groups["question"].tolist()])


def _nearest(train: Measurements, held_out: Measurements, values: Column) -> Column:
    if not len(train):
        return np.full(len(held_out), np.nan)
    mine, theirs = history_rows(held_out.queries), history_rows(train.queries)
    shared = np.zeros((len(held_out), len(train)))
    for weight, key in enumerate(NEAREST_KEYS[::-1], start=1):
        shared += weight * (mine.keys[key][:, None] == theirs.keys[key][None, :])
    apart = np.abs(mine.numbers["scale"][:, None] - theirs.numbers["scale"][None, :])
    older = mine.numbers["time"][:, None] - theirs.numbers["time"][None, :]
    best = np.argmax(shared - 0.1 * apart - 0.01 * np.abs(older), axis=1)
    return np.asarray(values[best])


def _scale(rows: Measurements, metric: str) -> Column:
    """Divisor that makes a metric comparable between systems: number of devices or 1, (n,)."""
    if metric not in ("samples_per_s", "wall_power_w"):
        return np.ones(len(rows))
    streams = np.array([is_stream(query) for query in rows.queries], dtype=np.bool_)
    return np.where(streams, 1.0, device_counts(rows.queries))
