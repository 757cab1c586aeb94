"""Predictions of a fitted predictor and of baselines for the rows of one task."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Column
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.answers.whole import WholeAnswers
from forerun.models.baselines.constant import Constant
from forerun.models.baselines.roofline import Roofline
from forerun.models.limit import Limit
from forerun.models.prediction import Predictions
from forerun.models.predictor import Predictor, Suggesting
from forerun.training.protocols.protocol import Task, median_by


def median_offset(
    predictor: Predictor | WholeAnswers,
    support: Measurements,
    held_out: Measurements,
    metric: str,
    group: str,
) -> Column:
    """Predictions of the unadapted predictor, scaled by the median of measured / predicted.

    Args:
        predictor: a predictor that is not adapted to the device.
        support: the support set, from which the medians are taken.
        held_out: n held-out rows to predict.
        metric: the metric that is predicted.
        group: grouping key (such as the execution mode) with a separate median for each value; a
            value without a support row takes the median of all support rows.

    Returns:
        Predictions in the metric's unit, shape (n,).
    """
    ratio = np.log(support.values[metric] / predictor.predict(support.queries).values[metric])
    known = replace(support, values={"log": ratio})
    offset = median_by(known, held_out, "log", (group,), ())
    return np.asarray(predictor.predict(held_out.queries).values[metric] * np.exp(offset))


@dataclass(frozen=True)
class TaskPredictions:
    """Predictions for the n rows of one task by one fitted predictor.

    Attributes:
        task: the evaluated task, with the n rows that are scored.
        seed: seed of the fit, or of the draw of the support set.
        columns: `measured`, `predicted`, and the ends `low` and `high` of the prediction interval,
            shape (n,) each, in the metric's unit; NaN where there is none.
        baselines: name -> predictions for the same rows, shape (n,).
        predictor: name of the predictor.
        shots: requested size of the support set; 0 stands for the task's default.
        in_domain: n flags, False where the query lies outside the training domain; None if they
            were not kept.
        grades: grades of the n answers, "" for none; None for a predictor that is evaluated alone.
    """

    task: Task
    seed: int
    columns: Mapping[str, Column]
    baselines: Mapping[str, Column]
    predictor: str
    shots: int = 0
    in_domain: NDArray[np.bool_] | None = None
    grades: NDArray[np.str_] | None = None


Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
TaskKey = tuple[str, str | None, str, str]
"""Name, device and metric of a task, and name of a predictor."""


def by_task(predictions: Iterable[TaskPredictions]) -> dict[TaskKey, list[TaskPredictions]]:
    """The predictions of each task by each predictor, over all folds and seeds."""
    return grouped(
        predictions,
        lambda prediction: (
            prediction.task.name,
            prediction.task.device,
            prediction.task.metric,
            prediction.predictor,
        ),
    )


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Each key, in order of appearance -> the items that have it."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def pooled(parts: Iterable[Mapping[str, Column]]) -> dict[str, Column]:
    """The columns of several folds, concatenated."""
    first, *rest = parts
    return {name: np.concatenate([first[name], *(part[name] for part in rest)]) for name in first}


def predict_task(
    task: Task,
    predictor: Predictor | WholeAnswers,
    constant: Predictor | None,
    seed: int,
    shots: int,
) -> TaskPredictions | None:
    """Predict the rows of a task, after few-shot adaptation if the task or the caller asks for it.

    Args:
        task: rows to predict.
        predictor: the fitted predictor.
        constant: baseline fitted on the same training set; None for no such baseline.
        seed: seed of the draw of the support set.
        shots: size of the support set, which is not scored; 0 for the task's default.

    Returns:
        The predictions, or None if the support set leaves no row to score.
    """
    if isinstance(predictor, WholeAnswers):
        predictor = predictor.only((task.metric,))
    count = shots or task.support.shots
    if count:
        given = task.support
        pool = task.held_out if given.pool is None else given.pool
        drawn = _draw(task, predictor, pool, count, seed)
        support = pool.take(drawn)
        unadapted = predictor
        predictor = predictor.adapt(support if given.always is None else support + given.always)
        if given.pool is None:
            task = task.take(~np.isin(np.arange(len(pool)), drawn))
    if not len(task.held_out):
        return None
    columns, in_domain, grades = _columns(task, predictor)
    baselines = {**task.baselines, **_baselines(task, constant)}
    if count:
        baselines |= _baselines_of_shots(task, unadapted, support)
    return TaskPredictions(task, seed, columns, baselines, predictor.name, shots, in_domain, grades)


def _columns(
    task: Task, predictor: Predictor | WholeAnswers
) -> tuple[dict[str, Column], NDArray[np.bool_], NDArray[np.str_] | None]:
    """`columns`, `in_domain` and `grades` of `TaskPredictions`.

    Rows that the predictor does not support are NaN and out of domain.
    """
    metric, held_out = task.metric, task.held_out
    rows = np.array([predictor.answers(q) for q in held_out.queries], dtype=np.bool_)
    found = {name: np.full(len(held_out), np.nan) for name in ("predicted", "low", "high")}
    in_domain = np.zeros(len(held_out), dtype=np.bool_)
    grades = (
        np.full(len(held_out), "", dtype="<U1") if isinstance(predictor, WholeAnswers) else None
    )
    if rows.any():
        queries: list[Query] = [held_out.queries[row] for row in np.flatnonzero(rows).tolist()]
        answers = predictor.predict(queries)
        if grades is not None:
            grades[rows] = answers.grades[metric]
        if task.device_only:
            answers = _without_host(answers)
        parts = {"predicted": answers.values, "low": answers.low, "high": answers.high}
        for name, columns in parts.items():
            if metric in columns:
                found[name][rows] = columns[metric]
        outside: Sequence[tuple[Limit, ...]] = answers.limits or [()] * len(queries)
        in_domain[rows] = [all(limit.in_domain for limit in limits) for limits in outside]
    in_domain &= np.isfinite(found["predicted"])
    return {"measured": held_out.values[metric], **found}, in_domain, grades


def _without_host(answers: Predictions) -> Predictions:
    """Latency without the host's share, and without intervals."""
    host_ms = np.array([parts.get("host", 0.0) for parts in answers.breakdowns_ms])
    device_ms = answers.values["latency_ms"] - host_ms
    return Predictions({"latency_ms": device_ms}, limits=answers.limits)


def _draw(
    task: Task, predictor: Predictor | WholeAnswers, pool: Measurements, count: int, seed: int
) -> NDArray[np.intp]:
    if task.support.suggested and isinstance(predictor, Suggesting):
        chosen = predictor.suggest(pool.queries, count, seed)
        if chosen:
            return np.array(chosen, dtype=np.intp)
    return np.random.default_rng(seed).permutation(len(pool))[:count]


def _baselines_of_shots(
    task: Task, unadapted: Predictor | WholeAnswers, support: Measurements
) -> dict[str, Column]:
    """Predictions of n held-out rows by baselines that use the support rows, shape (n,) each."""
    found: dict[str, Column] = {}
    held_out, group = task.held_out, task.support.offset_by
    if group:
        found["median_offset"] = median_offset(unadapted, support, held_out, task.metric, group)
    if task.scale is not None:
        constant = Constant().fit(support)
        found["mean_of_shots"] = constant.predict(held_out.queries).values[task.metric]
    return found


def _baselines(task: Task, constant: Predictor | None) -> dict[str, Column]:
    held_out, metric = task.held_out, task.metric
    found: dict[str, Column] = {}
    if metric == "latency_ms" and all(query.has_bound for query in held_out.queries):
        found["roofline"] = Roofline().predict(held_out.queries).values[metric]
    if constant is not None:
        predictions = constant.predict(held_out.queries).values
        found["constant"] = predictions.get(metric, np.full(len(held_out), np.nan))
    return found
