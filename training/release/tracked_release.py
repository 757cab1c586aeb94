"""Log a release in MLflow: one run, with a child run per fitted predictor and per dataset."""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forerun.training import plots as figures
from forerun.training.evaluation.breakdown import SCORES
from forerun.training.evaluation.predictions import TaskPredictions, pooled
from forerun.training.protocols.recipes import Recipe
from forerun.training.release import registry
from forerun.training.release.fit import Trained
from forerun.training.scores.errors import absolute_percentage_errors, score
from forerun.training.tracking import runs as tracking

MOST_NAMED = 3
KIND = "forerun.kind"
"""Tag of a run: `release`, `training` or `evaluation`."""


def track_release(
    made: Trained,
    chosen: Sequence[Recipe],
    evaluations: Sequence[Mapping[str, Any]],
    predictions: Mapping[str, Sequence[TaskPredictions]],
) -> int:
    """Log a release and register its artifact as a new version.

    Args:
        made: the sealed artifact.
        chosen: recipes of the predictors that were fitted.
        evaluations: scores by dataset, as stored in `scores.json`.
        predictions: dataset -> predictions that the scores were computed from.

    Returns:
        Number of the registered version.

    Raises:
        MissingExtra: mlflow or matplotlib is not installed.
    """
    with tracking.tracked(f"release {release_name(chosen)}", tags={KIND: "release"}) as run:
        for recipe in chosen:
            _training_run(run, made, recipe)
        for evaluation in evaluations:
            _evaluation_run(run, made, evaluation, predictions.get(evaluation["dataset"], ()))
        run.card((made.folder / "card.md").read_text())
        return registry.register(run, made.folder)


def release_name(chosen: Sequence[Recipe]) -> str:
    """Predictors and datasets of a release as text; their number if there are many."""
    predictors = list(dict.fromkeys(recipe.predictor for recipe in chosen))
    datasets = list(dict.fromkeys(p.dataset for recipe in chosen for p in recipe.all_protocols))
    return f"{_listed(predictors, 'predictors')} on {_listed(datasets, 'datasets')}"


def _listed(names: Sequence[str], what: str) -> str:
    return ", ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} {what}"


def _training_run(parent: tracking.Run, made: Trained, recipe: Recipe) -> None:
    """One run with the settings of a predictor and the datasets it was trained on."""
    with tracking.tracked(
        f"train {release_name([recipe])}", parent=parent, tags={KIND: "training"}
    ) as run:
        predictor = recipe.unfitted()
        run.parameters({"predictor": predictor.name, **tracking.flat_parameters(predictor)})
        for protocols in recipe.all_protocols:
            _log_dataset(run, made, protocols.dataset, "training")


def _log_dataset(run: tracking.Run, made: Trained, name: str, context: str) -> None:
    """Log a dataset as an input of a run, if the training record has it."""
    digest = made.record.digests.get(name)
    if digest is not None:
        run.dataset(name, digest, made.record.rows.get(name, 0), context=context)


def _evaluation_run(
    parent: tracking.Run,
    made: Trained,
    evaluation: Mapping[str, Any],
    predictions: Sequence[TaskPredictions],
) -> None:
    """One run with the scores of a dataset and of each fold, and plots of the predictions."""
    dataset = str(evaluation["dataset"])
    names = list(dict.fromkeys(str(task["predictor"]) for task in evaluation["tasks"]))
    title = f"evaluate {_listed(names, 'predictors')} on {dataset}"
    with tracking.tracked(title, parent=parent, tags={KIND: "evaluation"}) as run:
        tasks = dict.fromkeys(task["task"].partition("/")[0] for task in evaluation["tasks"])
        run.parameters(
            {
                "dataset": dataset,
                "predictors": ", ".join(names),
                "protocols": ", ".join(tasks),
                "seeds": evaluation["seeds"],
                "shots": evaluation["shots"],
                "held_out_rows": sum(task["n"] or 0 for task in evaluation["tasks"]),
            }
        )
        _log_dataset(run, made, dataset, "evaluation")
        for task in evaluation["tasks"]:
            run.scores(_label(task), {k: v for k, v in task.items() if _is_number(v)})
        for name, series in _by_fold(predictions).items():
            run.series(name, series)
        with tempfile.TemporaryDirectory() as place:
            for picture in pictures(Path(place), dataset, predictions):
                run.figure(picture)


def _by_fold(predictions: Sequence[TaskPredictions]) -> dict[str, list[float | None]]:
    """`folds/TASK/SCORE` -> its value in each fold (and seed), in the order of the folds."""
    series: dict[str, list[float | None]] = {}
    for each in predictions:
        place = {"task": each.task.name, "device": each.task.device}
        found = score(**each.columns)
        for name in SCORES:
            series.setdefault(f"folds/{_label(place)}/{name}", []).append(found[name])
    return series


def pictures(folder: Path, dataset: str, predictions: Sequence[TaskPredictions]) -> Iterator[Path]:
    """Parity and calibration plots for each metric.

    Args:
        folder: where the PNG files are written.
        dataset: name in their titles.
        predictions: predictions on one dataset.
    """
    for metric in dict.fromkeys(each.task.metric for each in predictions):
        of_metric = [each for each in predictions if each.task.metric == metric]
        columns = pooled(each.columns for each in of_metric)
        measured, predicted = columns["measured"], columns["predicted"]
        groups = [each.task.name for each in of_metric for _ in each.columns["measured"]]
        stem, title = folder / f"{dataset}-{metric}", f"{dataset}: "
        errors = absolute_percentage_errors(measured, predicted)
        if np.isfinite(errors).any() and (predicted[np.isfinite(errors)] > 0).any():
            yield figures.parity(
                stem.with_name(f"{stem.name}-parity.png"),
                measured,
                predicted,
                groups,
                metric_name=metric,
                title=f"{title}predicted against measured",
            )
        if np.isfinite(columns["low"]).any():
            yield figures.calibration(
                stem.with_name(f"{stem.name}-calibration.png"),
                measured,
                columns["low"],
                columns["high"],
                title=f"{title}coverage of {metric} by width",
            )


def _label(task: Mapping[str, Any]) -> str:
    """Name of a task and its device for MLflow, which permits letters, digits and some signs."""
    return re.sub(r"[^\w./ -]", "_", f"{task['task']}/{task['device'] or 'all'}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
