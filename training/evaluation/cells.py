"""Errors of whole answers in cells of rows, which are small enough to be stored with the scores.

A cell is all rows of a task with the same device, group of workloads, precision and phase. Two
evaluations are compared cell by cell, on the same rows, so that a change in one slice shows.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from forerun.data.columns import rows_by
from forerun.models.artifact.training_record import Setting, setting_of
from forerun.training.evaluation.breakdown import row_keys
from forerun.training.evaluation.predictions import TaskPredictions, grouped
from forerun.training.scores.errors import (
    PairedErrors,
    SliceChange,
    absolute_percentage_errors,
    compared,
)

GROUPS: Final = ("family", "kernel", "program", "model", "op_class", "op_shape", "job", "suite")
"""Grouping keys that name what a row is of, the first that the rows have is `group` of the cell."""
FACTS: Final = ("device", "group", "precision", "phase")
MOST_GROUPS: Final = 60
"""Most groups of a task with cells of their own; those with the fewest rows are one, `others`."""
OTHERS: Final = "others"


def cells_of(predictions: Sequence[TaskPredictions]) -> list[dict[str, Any]]:
    """The cells of each task, over all folds and seeds.

    Returns:
        `task`, `device`, `metric`, and `cells`: the values of `FACTS`, the number of rows of one
        seed and their mean absolute percentage error over all seeds.
    """
    tasks = grouped(predictions, lambda one: (one.task.name, one.task.device, one.task.metric))
    found = []
    for (name, device, metric), own in tasks.items():
        rows = [row for one in own for row in _rows(one)]
        sizes = Counter(facts[1] for facts, _ in rows)
        large = {group for group, _ in sizes.most_common(MOST_GROUPS)}
        places = rows_by(
            (where, group if group in large else OTHERS, *run) for (where, group, *run), _ in rows
        )
        errors, seeds = np.array([error for _, error in rows]), len({one.seed for one in own})
        cells = [
            [*key, round(len(place) / seeds, 3), float(f"{np.mean(errors[place]):.5g}")]
            for key, place in places.items()
        ]
        found.append({"task": name, "device": device, "metric": metric, "cells": cells})
    return found


def settings_judged(predictions: Sequence[TaskPredictions]) -> dict[Setting, int]:
    """Setting -> number of rows that the answers of one fit to any task were scored on.

    Answers adapted to more rows than the task itself gives, and device times for latencies, are
    other answers than those that are asked for.
    """
    found: Counter[Setting] = Counter()
    tasks: dict[str, Counter[Setting]] = {}
    for one in predictions:
        rows, task = one.task.held_out, one.task
        if one.seed or one.shots or task.device_only:
            continue
        scored = np.isfinite(one.columns["measured"]) & np.isfinite(one.columns["predicted"])
        own = (
            setting_of(rows.queries[row], task.metric) for row in np.flatnonzero(scored).tolist()
        )
        tasks.setdefault(task.name, Counter()).update(own)
    for counted in tasks.values():
        found |= counted
    return dict(found)


def _rows(prediction: TaskPredictions) -> Iterator[tuple[tuple[str, ...], float]]:
    """`FACTS` and the error of each row that has both a positive value and an answer."""
    keys = row_keys(prediction.task.held_out)
    nothing = np.full(len(prediction.task.held_out), "")
    group = next((keys[name] for name in GROUPS if name in keys), nothing)
    columns = {**keys, "group": group}
    facts = zip(*(columns.get(name, nothing).tolist() for name in FACTS), strict=True)
    errors = absolute_percentage_errors(
        prediction.columns["measured"], prediction.columns["predicted"]
    )
    for own, error in zip(facts, errors.tolist(), strict=True):
        if np.isfinite(error):
            yield own, error


def changes(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, SliceChange]]:
    """Task and change of each slice of the tables that both evaluations have cells of.

    Args:
        before: evaluations by dataset, as stored with a predictor.
        after: the same of another one.
    """
    theirs = dict(_by_task(before))
    for key, cells in _by_task(after):
        shared = sorted(theirs.get(key, {}).keys() & cells.keys())
        if not shared:
            continue
        old = np.array([theirs[key][cell] for cell in shared])
        new = np.array([cells[cell] for cell in shared])
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
        for own in evaluation.get("cells", ()):
            key = (evaluation["dataset"], own["task"], own["device"] or "", own["metric"])
            yield key, {tuple(c[: len(FACTS)]): tuple(c[len(FACTS) :]) for c in own["cells"]}
