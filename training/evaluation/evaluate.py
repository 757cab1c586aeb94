"""Evaluate predictors under a dataset's protocols, next to baselines and published systems.

On a bundle that the current predictors were trained on, the release is refitted for every fold
without the rows that the fold holds out, and its whole answers are scored. A predictor that is
named is fitted alone on the training rows of the fold. On any other folder, and on a dataset that
trains no predictor, nothing is fitted: the current answers are scored without the rows of their
training set. With `shots`, the predictors first adapt to a support set of that many rows of the
device under test.

Root mean square errors are on a task's own scale. A protocol of several parts (programs, folds) has
one error over all rows and another that is the mean over parts. The errors of several
metrics, each on its own scale, are also summed.
"""

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.data.bundle import Bundle, find
from forerun.data.columns import Column
from forerun.data.device import DeviceCatalog
from forerun.data.errors import BadTable, InputError, MissingData
from forerun.models.answers.served_models import InUse
from forerun.models.answers.whole import WholeAnswers
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.baselines.constant import Constant
from forerun.models.predictor import Predictor
from forerun.training.engines.jobs import LOCAL, Engine, Job, Progress
from forerun.training.evaluation.breakdown import (
    broken_down,
    check_file,
    conditional_coverage,
    write_answers,
)
from forerun.training.evaluation.cells import cells_of
from forerun.training.evaluation.predictions import (
    TaskPredictions,
    by_task,
    grouped,
    pooled,
    predict_task,
)
from forerun.training.evaluation.refit import Refit, Refits, predictors_of_others
from forerun.training.evaluation.stored import released_artifact
from forerun.training.protocols import protocols_of_dataset
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Seen, Task
from forerun.training.scores.errors import graded, mean_and_standard_error, score
from forerun.training.tracking import runs as tracking

Scores = dict[str, Any]
SUM = "sum"
"""Value of the field `metric` in a row of summed errors."""


def root_mean_squares(predictions: Sequence[TaskPredictions]) -> Scores:
    """Fields for a task's row with its root mean square errors; empty if the task has no scale.

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
    baselines = {
        s: np.mean([_errors(seed_predictions, s) for seed_predictions in seeds], axis=0).tolist()
        for s in systems
    }
    mean, error = mean_and_standard_error(pooled)
    return {
        "score": "rmse",
        "rmse": mean,
        "rmse_part_mean": mean_and_standard_error(parts)[0],
        "rmse_standard_error": error,
        "baselines_rmse": {s: whole for s, (whole, _) in baselines.items()},
        "baselines_rmse_part_mean": {s: part_mean for s, (_, part_mean) in baselines.items()},
    }


def summed_rows(predictions: Sequence[TaskPredictions]) -> list[Scores]:
    """Summed errors of each task and predictor with several metrics that have a scale.

    Returns:
        Rows whose `metric` is `sum`, with `rmse_sum`, `rmse_sum_part_mean` and the same fields of
        baselines.
    """
    scaled = [answer for answer in predictions if answer.task.scale is not None]
    found = []
    for key, of_task in grouped(
        scaled, lambda answer: (answer.task.name, answer.predictor)
    ).items():
        metrics = list(grouped(of_task, lambda answer: answer.task.metric).values())
        if len(metrics) > 1:
            found.append(_summed(*key, metrics))
    return found


def _summed(name: str, predictor: str, metrics: Sequence[Sequence[TaskPredictions]]) -> Scores:
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


def _by_seed(predictions: Sequence[TaskPredictions]) -> list[list[TaskPredictions]]:
    return [
        same_seed
        for _, same_seed in sorted(grouped(predictions, lambda prediction: prediction.seed).items())
    ]


def _errors(parts: Sequence[TaskPredictions], baseline: str | None = None) -> tuple[float, float]:
    """Root mean square error over all rows, and the mean of the parts' errors."""
    squared_errors = [_squared_errors(part, baseline) for part in parts]
    pooled = float(np.sqrt(np.mean(np.concatenate(squared_errors))))
    return pooled, float(np.mean([np.sqrt(part.mean()) for part in squared_errors if len(part)]))


def _squared_errors(part: TaskPredictions, baseline: str | None) -> Column:
    scale = part.task.scale
    assert scale is not None
    predicted = part.columns["predicted"] if baseline is None else part.baselines[baseline]
    squares = (scale(predicted) - scale(part.columns["measured"])) ** 2
    return np.asarray(squares[np.isfinite(squares)])


Keep = Callable[[DatasetProtocols, Bundle, Sequence[TaskPredictions]], None]


_NOTHING: Final[Mapping[str, Any]] = {
    **dict.fromkeys((*score([], []), "mape_standard_error")),
    "baselines": {},
}
"""Rows of summed errors have the fields of all other rows, None where a field does not apply."""


def evaluate(
    name: str,
    *,
    current: LoadedPredictor,
    record: TrainingRecord,
    data_dir: Path | None = None,
    shots: int = 0,
    seeds: int = 1,
    protocols: Sequence[str] = (),
    predictors: Sequence[str] = (),
    by: Sequence[str] = (),
    rows_file: Path | None = None,
    keep: Keep = lambda protocols, bundle, predictions: None,
    progress: Progress = lambda line: None,
    engine: Engine = LOCAL,
) -> dict[str, Any]:
    """Scores of the tasks of one dataset, ready for JSON.

    Args:
        name: dataset.
        current: the current predictors, scored on folders that they were not trained on.
        record: training record of the current predictors.
        data_dir: folder with the bundle's files; the pulled bundle when None.
        shots: size of the support set of the device under test; its rows are not scored.
        seeds: number of fits (or draws of the support set) to average.
        protocols: names of the protocols to run; all when empty.
        predictors: names of the predictors to evaluate alone; whole answers when empty.
        by: grouping keys for the breakdown of scores, as in `breakdown.broken_down`.
        rows_file: `.parquet` or `.csv` file for every prediction; not written when None.
        keep: called with the protocols, the bundle and the predictions if predictors were fitted
            on the training rows of each fold.
        progress: called with a line of text that reports progress.
        engine: runs the fits.

    Raises:
        InputError: the dataset has no predictor, protocol or grouping key of a given name.
        UnknownDataset: the dataset has no protocols.
        MissingData: the bundle is missing, or has none of the tables that the protocols read.
        BadTable: a table lacks a column.
    """
    if rows_file is not None:
        check_file(rows_file)
    dataset_protocols = protocols_of_dataset(name)
    bundle = find(name, data_dir)
    whole = _fits(dataset_protocols, bundle, data_dir, record, protocols)
    if whole:
        _check_protocols(dataset_protocols, bundle, protocols)
        settings = (shots, seeds, protocols, predictors, progress, engine)
        predictions = list(run_protocols(dataset_protocols, bundle, *settings))
        keep(dataset_protocols, bundle, predictions)
    else:
        tasks = _selected_tasks(dataset_protocols, bundle, record.seen(name), protocols)
        medians = record.medians.get(name, {})
        predictions = list(_evaluate_fitted(tasks, current, medians, shots, seeds, progress))
    if rows_file is not None:
        write_answers(rows_file, predictions)
    counted = dataset_protocols.fits_any_folder or not whole
    seen = {} if whole else record.seen(name)
    left_out = dataset_protocols.left_out(bundle, DeviceCatalog.load(), seen) if counted else {}
    return {
        "dataset": name,
        "fitted_on": "the rows each protocol allows" if whole else None,
        "predictor": None if whole else current.version,
        "shots": shots,
        "seeds": seeds,
        "left_out": {**left_out, **unanswered(predictions)},
        "tasks": [*rows(predictions), *({**_NOTHING, **row} for row in summed_rows(predictions))],
        "breakdown": broken_down(predictions, by) if by else [],
    }


def _check_protocols(
    dataset_protocols: DatasetProtocols, bundle: Bundle, names: Sequence[str]
) -> None:
    """Reject an unknown protocol before anything is fitted."""
    if names:
        folds = dataset_protocols.folds(bundle, DeviceCatalog.load())
        known = [fold.protocol for fold in folds]
        check_known("protocol", names, known, f"in {dataset_protocols.dataset}")


def _fits(
    dataset_protocols: DatasetProtocols,
    bundle: Bundle,
    data_dir: Path | None,
    record: TrainingRecord,
    protocols: Sequence[str],
) -> bool:
    """Whether predictors are fitted on the rows of this bundle."""
    whole = data_dir is None or dataset_protocols.fits_any_folder or record.knows(bundle)
    if not dataset_protocols.zero_shot:
        return whole
    return whole and bool(protocols) and set(protocols) <= {*dataset_protocols.fitted_protocols}


def run_protocols(
    dataset_protocols: DatasetProtocols,
    bundle: Bundle,
    shots: int = 0,
    seeds: int = 1,
    protocols: Sequence[str] = (),
    predictors: Sequence[str] = (),
    progress: Progress = lambda line: None,
    engine: Engine = LOCAL,
    refits: Refits | None = None,
) -> Iterator[TaskPredictions]:
    """Fit for each fold and predict its tasks, once for each seed.

    Names in `protocols` that this dataset does not have are ignored, since another dataset may have
    them.

    Args:
        dataset_protocols: protocols of the dataset.
        bundle: the dataset.
        shots: see `evaluate`, also for the arguments below.
        seeds: number of fits.
        protocols: names of protocols.
        predictors: names of predictors.
        progress: called with a line of text.
        engine: runs the fits.
        refits: refits of the release whose whole answers are predicted; when None, the release that
            comes with the package.
    """
    known = [predictor.name for predictor in dataset_protocols.predictors()]
    check_known("predictor", predictors, known, f"for {dataset_protocols.dataset}")
    predictors = predictors or predictors_of_others(dataset_protocols)
    refit = partial((refits or Refits(released_artifact())).of, dataset_protocols, bundle)
    jobs = (
        job
        for fold in dataset_protocols.checked_folds(bundle, DeviceCatalog.load())
        if not protocols or fold.protocol in protocols
        for job in fold_jobs(dataset_protocols, fold, (shots,), seeds, predictors, refit)
    )
    for predictions in engine.results(fit_and_predict, jobs, progress):
        yield from predictions


def fold_jobs(
    dataset_protocols: DatasetProtocols,
    fold: Fold,
    shots: Sequence[int],
    seeds: int,
    predictors: Sequence[str],
    refit: Callable[[Fold, int], Refit],
) -> Iterator[Job]:
    """Jobs of `fit_and_predict` for the named predictors in one fold.

    Without names, the jobs predict the whole answers of the release that `refit` gives for a seed.
    """
    for seed in range(seeds):
        if not predictors:
            whole = refit(fold, seed)
            name = f"{fold.protocol}: {whole.text()}, seed {seed}"
            yield Job(name, (whole, fold, tuple(shots), seed))
            continue
        for predictor in _selected_predictors(dataset_protocols, fold, predictors, seed):
            rows_text = f"{len(fold.train):,} rows, seed {seed}"
            name = f"{fold.protocol}: fitting {predictor.name} on {rows_text}"
            yield Job(name, (predictor, fold, tuple(shots), seed))


def fit_and_predict(
    predictor: Predictor | Refit, fold: Fold, shots: Sequence[int], seed: int
) -> list[TaskPredictions]:
    """Fit once and predict the tasks of a fold at every number of shots."""
    constant = Constant().fit(fold.train) if len(fold.train) else None
    fitted: Predictor | WholeAnswers
    if isinstance(predictor, Refit):
        fitted = predictor.answers(sorted({task.metric for task in fold.tasks}))
    else:
        fitted = predictor.fit(fold.train)
    found = [
        predict_task(task, fitted, constant, seed, count) for count in shots for task in fold.tasks
    ]
    return [prediction for prediction in found if prediction is not None]


def _selected_tasks(
    dataset_protocols: DatasetProtocols,
    bundle: Bundle,
    seen: Seen,
    protocols: Sequence[str],
) -> list[Task]:
    """Tasks on a folder where nothing is fitted, of the named protocols or of all."""
    check_tables(dataset_protocols, bundle)
    tasks = list(dataset_protocols.evaluation_tasks(bundle, DeviceCatalog.load(), seen))
    names = [task.name.partition("/")[0] for task in tasks]
    check_known("protocol", protocols, names, f"in {dataset_protocols.dataset}")
    return [t for t, n in zip(tasks, names, strict=True) if not protocols or n in protocols]


def _selected_predictors(
    dataset_protocols: DatasetProtocols, fold: Fold, names: Sequence[str], seed: int
) -> Sequence[Predictor]:
    """The named predictors that predict a metric of the fold's tasks."""
    metrics = {task.metric for task in fold.tasks}
    every = dataset_protocols.predictors(seed)
    able = [p for p in every if metrics.intersection(p.metrics)] or every
    return [p for p in able if p.name in names]


def check_known(what: str, names: Sequence[str], known: Sequence[str], where: str) -> None:
    """Reject a name that is not known.

    Raises:
        InputError: the message lists the known names.
    """
    unknown = [name for name in names if name not in known]
    if unknown:
        there = f"there are {', '.join(dict.fromkeys(known))}" if known else "its rows allow none"
        raise InputError(f"No {what} {unknown[0]!r} {where}; {there}.")


def _evaluate_fitted(
    tasks: Sequence[Task],
    current: LoadedPredictor,
    medians: Mapping[str, float],
    shots: int,
    seeds: int,
    progress: Progress,
) -> Iterator[TaskPredictions]:
    """Score the current answers, with the median of the training set as a baseline."""
    predictor = WholeAnswers(InUse(current), tuple({task.metric: None for task in tasks}))
    for task in tasks:
        progress(f"{task.name}, {task.device or 'all devices'}: {len(task.held_out):,} rows")
        for seed in range(seeds if shots or task.support.shots else 1):
            prediction = predict_task(task, predictor, None, seed, shots)
            if prediction is None:
                continue
            if task.metric in medians:
                constant = np.full(len(prediction.columns["measured"]), medians[task.metric])
                baselines = {**prediction.baselines, "training_median": constant}
                prediction = replace(prediction, baselines=baselines)
            yield prediction


def evaluation_of(
    bundle: Bundle, predictions: Sequence[TaskPredictions], seeds: int = 1
) -> dict[str, Any]:
    """Scores of one dataset, rounded to five significant digits.

    Args:
        bundle: the dataset.
        predictions: the predictions of `run_protocols` on it.
        seeds: number of fits.

    Returns:
        `dataset`, its `digest`, `commit` and `date` of the evaluation, `seeds`, `shots`, `tasks`
        (from `rows`), `conditional_coverage`, and `cells` (from `cells_of`).
    """
    return {
        "dataset": bundle.name,
        "digest": bundle.digest,
        "commit": tracking.git_commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "seeds": seeds,
        "shots": 0,
        "tasks": _rounded(rows(predictions)),
        "conditional_coverage": _rounded(conditional_coverage(predictions)),
        "cells": cells_of(predictions),
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def rows(predictions: Sequence[TaskPredictions]) -> list[dict[str, Any]]:
    """One row for each task and device: folds are pooled, then seeds are averaged.

    Returns:
        Dictionaries with the fields of `forerun evaluate --json`; percentages are 0 to 100.
    """
    return [_row(of_task) for of_task in by_task(predictions).values()]


def _row(predictions: Sequence[TaskPredictions]) -> dict[str, Any]:
    task = predictions[0].task
    per_seed, others = [], []
    further: list[list[Mapping[str, Any]]] = [[] for _ in task.scores]
    for seed in sorted({a.seed for a in predictions}):
        same_seed = [a for a in predictions if a.seed == seed]
        columns = pooled(prediction.columns for prediction in same_seed)
        per_seed.append(score(**columns))
        named = pooled(prediction.baselines for prediction in same_seed)
        for found, *parts in zip(further, *(each.task.scores for each in same_seed), strict=True):
            if parts[0].pooled:
                found.append(reduce(add, parts).of(columns, named))
            else:
                folds = zip(parts, same_seed, strict=True)
                found += [part.of(each.columns, each.baselines) for part, each in folds]
        others.append({name: score(columns["measured"], parts) for name, parts in named.items()})
    row: dict[str, Any] = {"task": task.name, "device": task.device, "metric": task.metric}
    row["predictor"] = predictions[0].predictor
    for field, first in per_seed[0].items():
        counted = field in ("n", "unanswered")
        row[field] = first if counted else _mean([s[field] for s in per_seed])
    for each, found in zip(task.scores, further, strict=True):
        row |= _averaged(found) | ({"score": each.ranks} if each.ranks else {})
    row["mape_standard_error"] = mean_and_standard_error([s["mape"] for s in per_seed])[1]
    for name, field in (("baselines", "mape"), ("baselines_median_ape", "median_ape")):
        row[name] = {system: _mean([o[system][field] for o in others]) for system in others[0]}
    row.update(root_mean_squares(predictions))
    row.update(_grades(predictions))
    return row


def _grades(predictions: Sequence[TaskPredictions]) -> dict[str, Any]:
    """The field `grades` of whole answers over all folds and seeds, from `graded`."""
    grades = [prediction.grades for prediction in predictions if prediction.grades is not None]
    if not grades:
        return {}
    columns = pooled(prediction.columns for prediction in predictions)
    return {"grades": graded(**columns, grades=np.concatenate(grades).tolist())}


def _averaged(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean of each field over seeds and folds; empty if nothing is given."""
    means: dict[str, Any] = {}
    for name, first in (found[0] if found else {}).items():
        values = [scores.get(name) for scores in found]
        if isinstance(first, Mapping):
            means[name] = _averaged([value for value in values if value is not None])
        else:
            means[name] = _mean(values)
    return means


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None


def check_tables(dataset_protocols: DatasetProtocols, bundle: Bundle) -> None:
    """Reject a folder that lacks the expected tables or columns; the message names both sides.

    Raises:
        MissingData: the folder holds none of the tables that the protocols read.
        BadTable: a table lacks a column.
    """
    if not dataset_protocols.reads:
        return
    available = bundle.tables()
    if not set(dataset_protocols.reads) & set(available):
        expected = " or ".join(f"{name}.parquet (or .csv)" for name in dataset_protocols.reads)
        raise MissingData(
            f"{bundle.folder} has no table that `forerun evaluate {dataset_protocols.dataset}` "
            f"reads: it wants {expected}, and there is "
            f"{', '.join(available)}.{_close(available, list(dataset_protocols.reads))}"
        )
    for table, wanted in dataset_protocols.reads.items():
        if table not in available:
            continue
        columns = [str(name) for name in bundle.table(table).columns]
        missing = [name for name in wanted if name not in columns]
        if missing:
            raise BadTable(
                f"{bundle.folder / table} lacks the column{'s' * (len(missing) > 1)} "
                f"{', '.join(missing)}; it needs {', '.join(wanted)} and has "
                f"{', '.join(columns)}.{_close(columns, missing)}"
            )


def _close(given: Sequence[str], wanted: Sequence[str]) -> str:
    """Suggested renames of given names that closely match an expected one; empty if none does."""
    pairs = [(difflib.get_close_matches(name, given, 1), name) for name in wanted]
    renames = [f"{close[0]} to {name}" for close, name in pairs if close and close[0] not in wanted]
    return f" Rename {', '.join(renames)}?" if renames else ""


def unanswered(predictions: Sequence[TaskPredictions]) -> dict[str, int]:
    """Reason -> number of measured rows without a prediction, in the first seed."""
    counts: Counter[str] = Counter()
    for prediction in predictions:
        columns, task = prediction.columns, prediction.task
        missing = np.isfinite(columns["measured"]) & ~np.isfinite(columns["predicted"])
        if prediction.seed == predictions[0].seed and missing.any():
            reason = f"{task.name}: {prediction.predictor} gives no {task.metric} for them"
            counts[reason] += int(missing.sum())
    return dict(counts)


def nothing_evaluated(result: dict[str, Any]) -> str | None:
    """Why a result of `evaluate` has no score, in one line; None if it has one."""
    if any(task["n"] for task in result["tasks"]):
        return None
    reasons = "; ".join(f"{count:,} rows: {why}" for why, count in result["left_out"].items())
    return (
        f"Nothing could be evaluated. {reasons or 'The folder holds no row that can be evaluated'}."
    )
