"""Predictions as a table, scores by groups of rows, and conditional coverage.

Prediction intervals that cover 90 % of all rows may still cover few rows of one family. Conditional
coverage is the coverage within a group of rows. The worst decile is the mean over the tenth of the
groups with the lowest coverage or the largest error.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.errors import InputError
from forerun.data.lazy import pd
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import (
    Network,
    OperatorWorkload,
    batch_size_of,
)
from forerun.training.evaluation.predictions import TaskPredictions, by_task
from forerun.training.scores.errors import score

Text = NDArray[np.str_]
Group = dict[str, Any]
"""The values that the rows of a group share, and their scores."""
INTERVAL: Final = "interval"
CONDITIONAL: Final = ("family", "batch", "device", "precision", INTERVAL)
"""Grouping keys of the conditional coverage in a model card; keys that rows lack are skipped."""
FEWEST_ROWS: Final = 20
"""Smallest group that counts for the worst decile. With 90 % intervals, the coverage of a smaller
group often falls below 80 % by chance (binomial distribution: in 13 % of groups of 10 rows, in 4 %
of groups of 20)."""
INTERVAL_GROUPS: Final = 10
ANSWERS: Final = ("measured", "predicted", "low", "high", "in_domain")
"""Last columns of a table of predictions."""
SCORES: Final = ("n", "unanswered", "mape", "median_ape", "coverage_90", "mean_interval_ratio")


def row_keys(rows: Measurements) -> dict[str, Text]:
    """The grouping keys of n rows, from the dataset and from the queries.

    Returns:
        Key -> shape (n,): the dataset's own keys (device, model, family, ...), and `device`,
        `workload`, `batch_size`, `batch` (powers of two, such as `64-127`), `precision`, `phase`
        and `runtime` of the query; empty where a query has no such value.
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
    if isinstance(workload, OperatorWorkload):
        found["precision"] = workload.precision
    if isinstance(workload, Network):
        found["phase"] = workload.phase
    found["runtime"] = str(query.software.runtime)
    return found


def answer_table(predictions: Sequence[TaskPredictions]) -> "pd.DataFrame":
    """One row for each prediction.

    Returns:
        Columns `task`, `metric`, `predictor`, `seed`, the row's keys (`row_keys`), `measured`,
        `predicted`, `low`, `high` in the metric's unit (missing where there is none), and
        `in_domain`.
    """
    parts = []
    for prediction in predictions:
        head: Group = {"task": prediction.task.name, "metric": prediction.task.metric}
        head |= {"predictor": prediction.predictor, "seed": prediction.seed}
        keys = row_keys(prediction.task.held_out)
        values = {name: np.asarray(column) for name, column in prediction.columns.items()}
        flags = {} if prediction.in_domain is None else {"in_domain": prediction.in_domain}
        parts.append(pd.DataFrame({**keys, **values, **flags}).assign(**head))
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    last = [name for name in ANSWERS if name in table]
    return table[[*head, *_groupable(table), *last]]


def write_answers(path: Path, predictions: Sequence[TaskPredictions]) -> None:
    """Write every prediction to a `.parquet` or `.csv` file; the suffix of the name decides.

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


def broken_down(predictions: Sequence[TaskPredictions], by: Sequence[str]) -> list[Group]:
    """Scores of each task by groups of rows that share the values of all keys in `by`.

    Args:
        predictions: predictions with their rows.
        by: keys from `row_keys`, or `interval`: deciles of the rows by the ratio high / low.

    Returns:
        A dictionary for each task: `task`, `device`, `metric`, `predictor`, `by`, `groups` (each
        with `group`, the scores of `SCORES` and `in_domain`, percent), and `worst_decile`.

    Raises:
        InputError: no task has such a key; the message lists the available ones.
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


def conditional_coverage(predictions: Sequence[TaskPredictions]) -> list[Group]:
    """Conditional coverage of each task by each key of `CONDITIONAL` that its rows have.

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


def worst_decile(groups: Sequence[Group]) -> Group:
    """Coverage and error of the worst tenth of the groups (at least one group).

    Args:
        groups: scores of groups; groups of fewer than `FEWEST_ROWS` rows are ignored.

    Returns:
        `groups`: number of groups that count; `coverage`: mean coverage of the tenth with the
        lowest coverage, percent; `coverage_group`: the group with the lowest; `mape`: mean error of
        the tenth with the largest error, percent; `mape_group`: the group with the largest. All but
        the number are None if no group counts.
    """
    large = [group for group in groups if group["n"] >= FEWEST_ROWS]
    least, worst = _tenth(large, "coverage_90", 1.0), _tenth(large, "mape", -1.0)
    return {
        "groups": len(large),
        "coverage": _mean(least, "coverage_90"),
        "coverage_group": least[0]["group"] if least else None,
        "mape": _mean(worst, "mape"),
        "mape_group": worst[0]["group"] if worst else None,
    }


def _tenth(groups: Sequence[Group], name: str, sign: float) -> list[Group]:
    known = [group for group in groups if group[name] is not None]
    return sorted(known, key=lambda group: sign * group[name])[: -(-len(known) // 10)]


def _mean(groups: Sequence[Group], name: str) -> float | None:
    return float(np.mean([group[name] for group in groups])) if groups else None


def _tasks(predictions: Sequence[TaskPredictions]) -> "Iterator[tuple[Group, pd.DataFrame]]":
    """Each task with the table of its predictions over all folds and seeds."""
    for key, task_rows in by_task(predictions).items():
        table = answer_table(task_rows)
        groups = _interval_groups(table)
        if groups is not None:
            table[INTERVAL] = groups
        yield dict(zip(("task", "device", "metric", "predictor"), key, strict=True)), table


def _groupable(table: "pd.DataFrame") -> list[str]:
    heads = ("task", "metric", "predictor", "seed")
    return [str(name) for name in table if name not in (*heads, *ANSWERS)]


def _interval_groups(table: "pd.DataFrame") -> Text | None:
    """The decile of each row by the ratio high / low; None if no row has an interval."""
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


def _groups(table: "pd.DataFrame", by: Sequence[str]) -> list[Group]:
    return [
        {"group": dict(zip(by, map(str, key), strict=True)), **_scores(rows)}
        for key, rows in table.groupby(list(by), sort=True, dropna=False)
    ]


def _scores(rows: "pd.DataFrame") -> Group:
    names = ("measured", "predicted", "low", "high")
    all_scores = score(*(rows[name].to_numpy(dtype=float) for name in names))
    flags = rows.get("in_domain")
    inside = None if flags is None or flags.isna().all() else 100.0 * float(flags.mean())
    return {**{name: all_scores[name] for name in SCORES}, "in_domain": inside}
