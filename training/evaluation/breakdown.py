"""Predictions as a table, scores broken down by groups of rows, and conditional coverage.

Prediction intervals that cover 90 % of all rows may cover few rows of one family. Conditional
coverage is the coverage within groups of rows; the worst decile is the mean over the tenth of the
groups with the lowest coverage or the largest error.

Errors of whole answers in cells of rows, which are small enough to be stored with the scores.

A cell is all rows of a task with the same device, group of workloads, precision and phase. Two
evaluations are compared cell by cell, on the same rows, so that a change in one slice shows.

Root mean square errors on a task's own scale, over all rows and averaged over parts.

The error of a protocol of several parts (programs, folds) can be computed over all rows, or as the
mean over parts. Both are reported. Where a task has several metrics, each on its own scale, the sum
of their errors is reported as well.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

import numpy as np
from numpy.typing import NDArray

from forerun.data.circuits.netlist import Circuit
from forerun.data.columns import Column
from forerun.data.errors import InputError
from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.language_models.kernel import LlmKernel
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import (
    Architecture,
    Benchmark,
    Colocation,
    Design,
    Diffusion,
    Kernel,
    LlmServing,
    Network,
    batch_size_of,
)
from forerun.models.artifact.training_record import Setting, setting_of
from forerun.training.evaluation.predictions import TaskPredictions
from forerun.training.scores.errors import (
    PairedErrors,
    SliceChange,
    absolute_percentage_errors,
    compared,
    mean_and_standard_error,
    score,
)

if TYPE_CHECKING:
    import pandas as pd

    from forerun.training.evaluation.predictions import TaskPredictions


Scores = dict[str, Any]
SUM = "sum"
"""Value of the field `metric` in a row of summed errors."""


def root_mean_squares(predictions: Sequence["TaskPredictions"]) -> Scores:
    """Fields that root mean square errors add to a task's row; empty without a scale.

    Args:
        predictions: all parts and seeds of one task, device, metric and predictor.

    Returns:
        `rmse` over the rows of all parts and `rmse_part_mean`, both averaged over seeds, and
        `rmse_standard_error`; for baselines `baselines_rmse` and `baselines_rmse_part_mean`.
    """
    if predictions[0].task.scale is None:
        return {}
    seeds = _by_seed(predictions)
    pooled, parts = zip(*(_errors(same_seed) for same_seed in seeds), strict=True)
    systems = [s for s in predictions[0].baselines if all(s in a.baselines for a in predictions)]
    others = {s: [_errors(same_seed, s) for same_seed in seeds] for s in systems}
    mean, error = mean_and_standard_error(pooled)
    return {
        "score": "rmse",
        "rmse": mean,
        "rmse_part_mean": mean_and_standard_error(parts)[0],
        "rmse_standard_error": error,
        "baselines_rmse": {
            s: _mean([pooled for pooled, _ in errors]) for s, errors in others.items()
        },
        "baselines_rmse_part_mean": {
            s: _mean([part_mean for _, part_mean in errors]) for s, errors in others.items()
        },
    }


def summed_rows(predictions: Sequence["TaskPredictions"]) -> list[Scores]:
    """Summed errors of each task and predictor with several metrics that have a scale.

    Returns:
        Rows whose `metric` is `sum`, with `rmse_sum`, `rmse_sum_part_mean` and the same of
        baselines.
    """
    found: dict[tuple[str, str], dict[str, list[TaskPredictions]]] = {}
    for answer in predictions:
        if answer.task.scale is not None:
            metrics = found.setdefault((answer.task.name, answer.predictor), {})
            metrics.setdefault(answer.task.metric, []).append(answer)
    return [
        _summed(name, predictor, list(metrics.values()))
        for (name, predictor), metrics in found.items()
        if len(metrics) > 1
    ]


def _summed(name: str, predictor: str, metrics: Sequence[Sequence["TaskPredictions"]]) -> Scores:
    rows = [root_mean_squares(of_metric) for of_metric in metrics]
    per_seed = [
        [_errors(same_seed)[0] for same_seed in _by_seed(of_metric)] for of_metric in metrics
    ]
    sums = [float(sum(seed)) for seed in zip(*per_seed, strict=True)]
    first = _by_seed(metrics[0])[0]
    return {
        "task": name,
        "device": None,
        "metric": SUM,
        "predictor": predictor,
        "score": "rmse_sum",
        "n": sum(len(answer.columns["measured"]) for answer in first),
        "rmse_sum": float(np.mean(sums)),
        "rmse_sum_part_mean": sum(row["rmse_part_mean"] for row in rows),
        "rmse_sum_standard_error": mean_and_standard_error(sums)[1],
        "baselines_rmse_sum": _total([row["baselines_rmse"] for row in rows]),
        "baselines_rmse_sum_part_mean": _total([row["baselines_rmse_part_mean"] for row in rows]),
    }


def _total(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {s: sum(part[s] for part in parts) for s in parts[0] if all(s in p for p in parts)}


def _by_seed(predictions: Sequence["TaskPredictions"]) -> list[list["TaskPredictions"]]:
    return [
        [a for a in predictions if a.seed == seed] for seed in sorted({a.seed for a in predictions})
    ]


def _errors(parts: Sequence["TaskPredictions"], baseline: str | None = None) -> tuple[float, float]:
    """Root mean square error over all rows, and its mean over parts."""
    squared_errors = [_squared_errors(part, baseline) for part in parts]
    pooled = float(np.sqrt(np.mean(np.concatenate(squared_errors))))
    return pooled, float(np.mean([np.sqrt(part.mean()) for part in squared_errors if len(part)]))


def _squared_errors(part: "TaskPredictions", baseline: str | None) -> Column:
    scale = part.task.scale
    assert scale is not None
    predicted = part.columns["predicted"] if baseline is None else part.baselines[baseline]
    squares = (scale(predicted) - scale(part.columns["measured"])) ** 2
    return np.asarray(squares[np.isfinite(squares)])


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


Text = NDArray[np.str_]
INTERVAL: Final = "interval"
CONDITIONAL: Final = ("family", "batch", "device", "precision", INTERVAL)
"""Grouping keys of the conditional coverage in a model card, as far as the rows have them."""
FEWEST_ROWS: Final = 20
"""Fewest rows of a group that counts for the worst decile. With intervals of 90 % coverage, the
coverage of a smaller group often falls below 80 % by chance (binomial distribution: in 13 % of
groups of 10 rows, in 4 % of 20)."""
INTERVAL_GROUPS: Final = 10
SCORES: Final = ("n", "unanswered", "mape", "median_ape", "coverage_90", "mean_interval_ratio")


def row_keys(rows: Measurements) -> dict[str, Text]:
    """Keys that n rows can be grouped by: those of the dataset and those of their queries.

    Returns:
        Key -> shape (n,): the dataset's own keys (device, model, family, ...), and `device`,
        `workload`, `batch_size`, `batch` (powers of two, such as `64-127`), `precision`, `phase`
        and `runtime` of the query; empty where a query has none.
    """
    asked = [_keys_of(query) for query in rows.queries]
    names = dict.fromkeys(name for keys in asked for name in keys)
    found = {
        name: np.array([keys.get(name, "") for keys in asked], dtype=np.str_) for name in names
    }
    return {**found, **{name: column.astype(np.str_) for name, column in rows.groups.items()}}


def _keys_of(query: Query) -> dict[str, str]:
    workload = query.workload
    found = {"device": query.device.name, "workload": str(workload.kind)}
    batch = batch_size_of(workload)
    if batch:
        lower = 2 ** int(np.log2(batch))
        found["batch_size"] = str(batch)
        found["batch"] = str(lower) if lower == 1 else f"{lower}-{2 * lower - 1}"
    match workload:
        case Kernel():
            found["precision"] = workload.precision
        case Network():
            found |= {"precision": workload.precision, "phase": workload.phase}
        case LlmServing() | LlmDeployment() | LlmKernel() | Diffusion():
            pass
        case Architecture() | Design() | Benchmark() | Colocation() | Circuit():
            pass
        case _:
            assert_never(workload)
    found["runtime"] = str(query.software.runtime)
    return found


def answer_table(predictions: Sequence[TaskPredictions]) -> "pd.DataFrame":
    """One row for each prediction.

    Returns:
        Columns `task`, `metric`, `predictor`, `seed`, the row's keys (`row_keys`), `measured`,
        `predicted`, `low`, `high` in the metric's unit (missing where there is none), and
        `in_domain`.
    """
    import pandas as pd

    parts = []
    for prediction in predictions:
        head: dict[str, Any] = {
            "task": prediction.task.name,
            "metric": prediction.task.metric,
            "predictor": prediction.predictor,
            "seed": prediction.seed,
        }
        keys = {} if prediction.held_out is None else row_keys(prediction.held_out)
        values = {name: np.asarray(column) for name, column in prediction.columns.items()}
        flags = {} if prediction.in_domain is None else {"in_domain": prediction.in_domain}
        parts.append(pd.DataFrame({**keys, **values, **flags}).assign(**head))
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    last = ["measured", "predicted", "low", "high", "in_domain"]
    middle = [name for name in table if name not in (*head, *last)]
    return table[[*head, *middle, *(name for name in last if name in table)]]


def write_answers(path: Path, predictions: Sequence[TaskPredictions]) -> None:
    """Write every prediction to a `.parquet` or `.csv` file, by the suffix of its name.

    Raises:
        InputError: the name has another suffix.
    """
    check_file(path)
    table = answer_table(predictions)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        table.to_parquet(path, index=False)
    else:
        table.to_csv(path, index=False)


def check_file(path: Path) -> None:
    """Reject the name of an output file before anything is computed.

    Raises:
        InputError: the name ends in neither `.parquet` nor `.csv`.
    """
    if path.suffix not in (".parquet", ".csv"):
        raise InputError(f"Answers are written as .parquet or .csv, not {path.name!r}.")


def broken_down(predictions: Sequence[TaskPredictions], by: Sequence[str]) -> list[dict[str, Any]]:
    """Scores of each group of rows with the same values of all keys in `by`, for each task.

    Args:
        predictions: with their rows.
        by: keys of `row_keys`, or `interval`: deciles of the rows by the ratio high / low.

    Returns:
        A dictionary for each task: `task`, `device`, `metric`, `predictor`, `by`, `groups` (each
        with `group`, the scores of `SCORES` and `in_domain`, percent), and `worst_decile`.

    Raises:
        InputError: no task has such a key; the message names the available ones.
    """
    tasks = list(_tasks(predictions))
    known = dict.fromkeys(name for _, table in tasks for name in _groupable(table))
    unknown = [name for name in by if name not in known]
    if unknown and tasks:
        raise InputError(
            "No answer has an interval to group by."
            if unknown[0] == INTERVAL
            else f"Rows cannot be grouped by {unknown[0]!r}; there are {', '.join(known)}."
        )
    return [
        {**head, "by": list(by), "groups": groups, "worst_decile": worst_decile(groups)}
        for head, table in tasks
        if set(by) <= set(_groupable(table))
        for groups in [_groups(table, by)]
    ]


def conditional_coverage(predictions: Sequence[TaskPredictions]) -> list[dict[str, Any]]:
    """Conditional coverage of each task, by each key of `CONDITIONAL` that its rows have.

    Returns:
        `task`, `device`, `metric`, `predictor`, `by`, `coverage_90` (of all rows, percent), and
        the fields of `worst_decile`.
    """
    found = []
    for head, table in _tasks(predictions):
        covered = _scores(table)["coverage_90"]
        if covered is None:
            continue
        for name in CONDITIONAL:
            if name in _groupable(table):
                worst = worst_decile(_groups(table, [name]))
                if worst["groups"] > 1:
                    found.append({**head, "by": name, "coverage_90": covered, **worst})
    return found


def worst_decile(groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Coverage and error of the worst tenth of the groups (at least one group).

    Args:
        groups: scores of groups; those of fewer than `FEWEST_ROWS` rows are ignored.

    Returns:
        `groups`: number of groups that are not ignored; `coverage`: mean coverage of the tenth with
        the lowest, percent; `coverage_group`: the group with the lowest; `mape`: mean error of the
        tenth with the largest, percent; `mape_group`: the group with the largest. None where all
        groups are ignored.
    """
    large = [group for group in groups if group["n"] >= FEWEST_ROWS]
    least = _tenth([g for g in large if g["coverage_90"] is not None], "coverage_90", 1.0)
    worst = _tenth([g for g in large if g["mape"] is not None], "mape", -1.0)
    return {
        "groups": len(large),
        "coverage": _breakdown_mean(least, "coverage_90"),
        "coverage_group": least[0]["group"] if least else None,
        "mape": _breakdown_mean(worst, "mape"),
        "mape_group": worst[0]["group"] if worst else None,
    }


def _tenth(groups: Sequence[dict[str, Any]], name: str, sign: float) -> list[dict[str, Any]]:
    ordered = sorted(groups, key=lambda group: sign * group[name])
    return ordered[: -(-len(groups) // 10)]


def _breakdown_mean(groups: Sequence[dict[str, Any]], name: str) -> float | None:
    return float(np.mean([group[name] for group in groups])) if groups else None


def _tasks(
    predictions: Sequence[TaskPredictions],
) -> Iterator[tuple[dict[str, Any], "pd.DataFrame"]]:
    """Table of the predictions of each task, over all folds and seeds, as in `evaluate.rows`."""
    parts: dict[tuple[str, str | None, str, str], list[TaskPredictions]] = {}
    for prediction in predictions:
        if prediction.held_out is not None:
            key = (
                prediction.task.name,
                prediction.task.device,
                prediction.task.metric,
                prediction.predictor,
            )
            parts.setdefault(key, []).append(prediction)
    for key, task_rows in parts.items():
        table = answer_table(task_rows)
        groups = _interval_groups(table)
        if groups is not None:
            table[INTERVAL] = groups
        yield dict(zip(("task", "device", "metric", "predictor"), key, strict=True)), table


def _groupable(table: "pd.DataFrame") -> list[str]:
    numbers = ("measured", "predicted", "low", "high", "in_domain")
    heads = ("task", "metric", "predictor", "seed")
    return [str(name) for name in table if name not in (*numbers, *heads)]


def _interval_groups(table: "pd.DataFrame") -> Text | None:
    """Decile of each row by the ratio high / low; None where no row has an interval."""
    with np.errstate(all="ignore"):
        ratio = np.asarray(table["high"], dtype=float) / np.asarray(table["low"], dtype=float)
    known = np.isfinite(ratio)
    if not known.any():
        return None
    edges = np.unique(np.quantile(ratio[known], np.linspace(0.0, 1.0, INTERVAL_GROUPS + 1)))
    place = np.clip(np.searchsorted(edges, ratio, side="right") - 1, 0, max(len(edges) - 2, 0))
    names = np.array(
        [f"{edges[i]:.3g} to {edges[min(i + 1, len(edges) - 1)]:.3g}" for i in range(len(edges))]
    )
    return np.where(known, names[place], "none")


def _groups(table: "pd.DataFrame", by: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for key, rows in table.groupby(list(by), sort=True, dropna=False):
        group = dict(zip(by, map(str, key), strict=True))
        found.append({"group": group, **_scores(rows)})
    return found


def _scores(rows: "pd.DataFrame") -> dict[str, Any]:
    columns = (rows[name].to_numpy(dtype=float) for name in ("measured", "predicted"))
    ends = (rows[name].to_numpy(dtype=float) for name in ("low", "high"))
    all_scores = score(*columns, *ends)
    flags = rows.get("in_domain")
    inside = None if flags is None or flags.isna().all() else 100.0 * float(flags.mean())
    return {**{name: all_scores[name] for name in SCORES}, "in_domain": inside}


GROUPS: Final = ("family", "kernel", "program", "model", "op_class", "op_shape", "job", "suite")
"""Grouping keys that name what a row is of, the first that the rows have is `group` of the cell."""
FACTS: Final = ("device", "group", "precision", "phase")
MOST_GROUPS: Final = 60
"""Most groups of a task with cells of their own; those with the fewest rows are one, `others`."""
OTHERS: Final = "others"
Cells = Sequence[Mapping[str, Any]]


def cells_of(predictions: Sequence[TaskPredictions]) -> list[dict[str, Any]]:
    """The cells of each task, over all folds and seeds.

    Returns:
        `task`, `device`, `metric`, and `cells`: the values of `FACTS`, the number of rows of one
        seed and their mean absolute percentage error over all seeds.
    """
    tasks: dict[tuple[str, str | None, str], list[TaskPredictions]] = {}
    for one in predictions:
        tasks.setdefault((one.task.name, one.task.device, one.task.metric), []).append(one)
    found = []
    for (name, device, metric), own in tasks.items():
        rows = [row for one in own for row in _rows(one)]
        sizes = Counter(facts[1] for facts, _ in rows)
        large = {group for group, _ in sizes.most_common(MOST_GROUPS)}
        errors: dict[tuple[str, ...], list[float]] = {}
        for (where, group, *run), error in rows:
            key = (where, group if group in large else OTHERS, *run)
            errors.setdefault(key, []).append(error)
        seeds = len({one.seed for one in own})
        cells = [
            [*key, round(len(column) / seeds, 3), float(f"{np.mean(column):.5g}")]
            for key, column in sorted(errors.items())
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
        rows, task = one.held_out, one.task
        if rows is None or one.seed or one.shots or task.device_only:
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
    if prediction.held_out is None:
        return
    keys = row_keys(prediction.held_out)
    nothing = np.full(len(prediction.held_out), "")
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
