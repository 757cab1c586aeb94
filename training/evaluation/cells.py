"""Mean errors by cell: groups of rows small in number, so that they can be stored with the scores.

A cell is all rows of a task with the same device, group of workloads, precision and phase. Two
evaluations are compared cell by cell on the same rows, which shows changes within a slice.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from forerun.data.columns import rows_by
from forerun.data.workload import Network
from forerun.models.artifact.training_record import Judged, Setting, setting_of
from forerun.models.equal_runs import run_key
from forerun.training.evaluation.breakdown import row_keys
from forerun.training.evaluation.predictions import TaskPredictions, grouped
from forerun.training.scores.errors import (
    PairedErrors,
    SliceChange,
    absolute_percentage_errors,
    compared,
)

GROUPS: Final = ("family", "kernel", "program", "model", "op_class", "op_shape", "job", "suite")
"""Grouping keys that identify a workload; a cell's `group` is the first one that the rows have."""
FACTS: Final = ("device", "group", "precision", "phase")
MOST_GROUPS: Final = 60
"""Most groups of a task that have their own cells; the smallest groups are pooled as `others`."""
OTHERS: Final = "others"


def cells_of(predictions: Sequence[TaskPredictions]) -> list[dict[str, Any]]:
    """The cells of each task, over all folds and seeds.

    Returns:
        `task`, `device`, `metric`, and `cells`: the values of `FACTS`, the number of rows per seed,
        and their mean absolute percentage error over all seeds.
    """
    tasks = grouped(
        predictions,
        lambda prediction: (prediction.task.name, prediction.task.device, prediction.task.metric),
    )
    cells_by_task = []
    for (name, device, metric), of_task in tasks.items():
        rows = [row for prediction in of_task for row in _rows(prediction)]
        sizes = Counter(facts[1] for facts, _ in rows)
        large = {group for group, _ in sizes.most_common(MOST_GROUPS)}
        places = rows_by(
            (where, group if group in large else OTHERS, *run) for (where, group, *run), _ in rows
        )
        errors, seeds = (
            np.array([error for _, error in rows]),
            len({prediction.seed for prediction in of_task}),
        )
        cells = [
            [*key, round(len(place) / seeds, 3), float(f"{np.mean(errors[place]):.5g}")]
            for key, place in places.items()
        ]
        cells_by_task.append({"task": name, "device": device, "metric": metric, "cells": cells})
    return cells_by_task


def settings_judged(predictions: Sequence[TaskPredictions]) -> dict[Setting, Judged]:
    """Setting -> held-out runs inside the domain that were scored, over all tasks.

    Only the first seed counts. Predictions adapted to extra rows and device times scored in place
    of latencies are ignored, since the service gives neither.
    """
    found: dict[Setting, dict[Hashable, list[bool]]] = {}
    for prediction in predictions:
        rows, task = prediction.task.held_out, prediction.task
        if prediction.seed or prediction.shots or task.device_only:
            continue
        measured, low, high = (prediction.columns[name] for name in ("measured", "low", "high"))
        scored = np.isfinite(measured) & np.isfinite(low)
        if prediction.in_domain is not None:
            scored &= prediction.in_domain
        inside = (low <= measured) & (measured <= high)
        for row in np.flatnonzero(scored).tolist():
            query = rows.queries[row]
            same = repr((query.workload, query.software, query.operation))
            run = run_key(query) if isinstance(query.workload, Network) else same
            own = found.setdefault(setting_of(query, task.metric), {})
            own.setdefault(run, []).append(bool(inside[row]))
    return {
        setting: (len(runs), float(sum(map(np.mean, runs.values()))))
        for setting, runs in found.items()
    }


def _rows(prediction: TaskPredictions) -> Iterator[tuple[tuple[str, ...], float]]:
    """`FACTS` and the error of each row that has a positive measured value and a prediction."""
    keys = row_keys(prediction.task.held_out)
    nothing = np.full(len(prediction.task.held_out), "")
    group = next((keys[name] for name in GROUPS if name in keys), nothing)
    columns = {**keys, "group": group}
    facts = zip(*(columns.get(name, nothing).tolist() for name in FACTS), strict=True)
    errors = absolute_percentage_errors(
        prediction.columns["measured"], prediction.columns["predicted"]
    )
    for values, error in zip(facts, errors.tolist(), strict=True):
        if np.isfinite(error):
            yield values, error


def changes(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, SliceChange]]:
    """The error of each slice, for every task of which both evaluations have cells that differ.

    Args:
        before: evaluations by dataset, as stored with a predictor.
        after: evaluations of another predictor.
    """
    cells_before = dict(_by_task(before))
    for key, cells in _by_task(after):
        shared = sorted(cells_before.get(key, {}).keys() & cells.keys())
        old = np.array([cells_before[key][cell] for cell in shared])
        new = np.array([cells[cell] for cell in shared])
        if np.array_equal(old, new):
            continue
        columns = dict(zip(FACTS, zip(*shared, strict=True), strict=True))
        groups = columns["group"] if any(columns["group"]) else columns["device"]
        errors = PairedErrors(old[:, 1], new[:, 1], new[:, 0], groups, columns)
        dataset, task, _, metric = key
        for change in compared(metric, errors):
            yield f"{dataset} {task}", change


def _by_task(
    evaluations: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[tuple[str, str, str, str], dict[tuple[str, ...], tuple[float, float]]]]:
    for evaluation in evaluations:
        for task in evaluation.get("cells", ()):
            key = (evaluation["dataset"], task["task"], task["device"] or "", task["metric"])
            yield key, {tuple(c[: len(FACTS)]): tuple(c[len(FACTS) :]) for c in task["cells"]}
