"""`forerun train`: evaluate and fit predictors, seal them as an artifact, track and register it.

A release is one run in MLflow, with a child run per fitted predictor and per dataset.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from forerun.data.bundle import Bundle, find
from forerun.data.datasets import known_datasets
from forerun.data.datasets.imported import imported_tables
from forerun.data.errors import MissingData, SlicesGotWorse
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.catalog import catalog, training_datasets
from forerun.models.own_tables import TableBoost
from forerun.training import plots as figures
from forerun.training.engines.jobs import LOCAL, Engine, Progress
from forerun.training.evaluation.breakdown import SCORES
from forerun.training.evaluation.cells import settings_judged
from forerun.training.evaluation.evaluate import evaluation_of, run_protocols
from forerun.training.evaluation.predictions import TaskPredictions, pooled
from forerun.training.evaluation.refit import Refits
from forerun.training.evaluation.stored import (
    SCORES_FILE,
    Evaluations,
    evaluations_text,
    released_artifact,
    stored_with,
)
from forerun.training.protocols import protocols_of_dataset
from forerun.training.protocols.recipes import Recipe, recipes
from forerun.training.release import registry
from forerun.training.release.card import PACKAGES, Card, training_datasets_of
from forerun.training.release.fit import Trained, composable, recipes_of, train
from forerun.training.release.promotion import in_slices, not_judged
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


TITLE = "forerun predictors"
LIMITS = (
    "Each predictor was trained on few devices (see the tables); on others the interval is wider "
    "and `limits` says what is outside the training range.",
    "Power outside A30 and RTX 2080 Ti is an educated range, not a measurement.",
    "Latency is of a busy device at a fixed shape: no data loading, no queueing, no neighbours.",
    "fp16, bf16 and amp on operators alone are extrapolated from fp32.",
    "Neighbours were measured on one guest of two CPUs.",
)


def release(
    output: Path,
    *,
    names: Sequence[str] = (),
    base: Path | None = None,
    data: Path | None = None,
    evaluate: bool = True,
    protocols: Sequence[str] = (),
    accepted: str = "",
    track: bool = True,
    progress: Progress = lambda line: None,
    engine: Engine = LOCAL,
) -> dict[str, Any]:
    """Evaluate under every protocol, fit on all rows, seal with card and scores, and register.

    Args:
        output: folder of the artifact.
        names: predictors to fit, or imported tables to fit a predictor on; all predictors of the
            catalogue when empty.
        base: artifact whose other predictors are kept, with the scores that do not depend on the
            predictors that are fitted.
        data: folder that holds bundles by dataset name; the pulled ones when None.
        evaluate: whether to run the protocols first; without them the card has no scores.
        protocols: names of the protocols to run; all when empty.
        accepted: reason for accepting slices that are worse than in `base`, stored with the scores.
        track: whether to log the run in MLflow and register the version (needs the train extra).
        progress: called with a line of text that reports progress.
        engine: runs the fits.

    Returns:
        `folder`, `version`, `registered` (None when not tracked), `unjudged` (from `not_judged`),
        and the evaluations.

    Raises:
        SlicesGotWorse: a slice of some dataset is worse than in `base`, and no reason is given.
        MissingData: a bundle is missing.
        MissingExtra: tracking without the train extra.
    """
    chosen = recipes_of(names, composable(base))
    folders = {} if data is None else {n: data / n for n in _datasets_of_protocols(chosen)}
    refits = Refits(base or released_artifact(), folders, frozenset(r.predictor for r in chosen))
    run = partial(
        run_protocols, protocols=protocols, progress=progress, engine=engine, refits=refits
    )
    predictions: dict[str, list[TaskPredictions]] = {}
    scored = []
    for bundle in _bundles(chosen if evaluate else (), folders, progress):
        predictions[bundle.name] = list(run(protocols_of_dataset(bundle.name), bundle))
        scored.append(evaluation_of(bundle, predictions[bundle.name]))
    before = [] if base is None else stored_with(base)
    evaluations = _accepted(scored, before, accepted)
    replaced = {*predictions, *_evaluated_datasets(chosen)}
    scored = [*(e for e in before if e["dataset"] not in replaced), *evaluations]
    made = train(
        output,
        names=names,
        base=base,
        data=folders,
        judged={name: settings_judged(predictions.get(name, ())) for name in replaced},
        documents=partial(_documents, scored),
        progress=progress,
        engine=engine,
    )
    return {
        "folder": str(made.folder),
        "version": made.manifest.version,
        "registered": track_release(made, chosen, evaluations, predictions) if track else None,
        "unjudged": not_judged(made.record),
        "evaluations": evaluations,
    }


def _documents(scored: Evaluations, record: TrainingRecord) -> dict[str, str]:
    return {"card.md": _card(record, scored).markdown(), SCORES_FILE: evaluations_text(scored)}


def _datasets_of_protocols(chosen: Sequence[Recipe]) -> list[str]:
    """Datasets that the recipes' protocols belong to; all of them are required."""
    return list(
        dict.fromkeys(protocols.dataset for recipe in chosen for protocols in recipe.all_protocols)
    )


def _bundles(
    chosen: Sequence[Recipe], folders: Mapping[str, Path], progress: Progress
) -> Iterator[Bundle]:
    """The bundle of each dataset that these predictors are evaluated on.

    Raises:
        MissingData: a bundle that the recipes require is missing; other missing ones are skipped.
    """
    needed = _datasets_of_protocols(chosen)
    for name in _evaluated_datasets(chosen):
        try:
            yield find(name, folders.get(name))
        except MissingData as error:
            if name in needed:
                raise
            progress(f"not evaluated: {error}")


def _accepted(evaluations: Evaluations, before: Evaluations, reason: str) -> Evaluations:
    """The evaluations, with the reason added if a slice of some dataset got worse.

    Raises:
        SlicesGotWorse: a slice got worse, and no reason is given.
    """
    worse = [change for change in in_slices(before, evaluations) if change.lost]
    if worse and not reason:
        raise SlicesGotWorse([change.text() for change in worse])
    return [{**scored, "accepted": reason} for scored in evaluations] if worse else evaluations


def _evaluated_datasets(chosen: Sequence[Recipe]) -> list[str]:
    """Datasets to evaluate: those the predictors train on, and those they help to answer."""
    names: dict[str, None] = {}
    for recipe in chosen:
        evaluated_on = catalog()[recipe.predictor].evaluated_on
        trained_on = (*_datasets_of_protocols([recipe]), *training_datasets(recipe.predictor))
        names |= dict.fromkeys((*trained_on, *evaluated_on))
    return list(names)


def _answers(record: TrainingRecord) -> list[str]:
    """What each released predictor predicts, in the order in which the router asks them."""
    tables = set(record.digests) & set(imported_tables())
    of_tables = [
        f"what was measured in {table}, by `{TableBoost.name}`" for table in sorted(tables)
    ]
    entries = catalog()
    return of_tables + [f"{e.answers}, by `{name}`" for name, e in entries.items() if e.trained_on]


def _card(record: TrainingRecord, evaluations: Sequence[Mapping[str, Any]]) -> Card:
    sources = {s.name: f"{s.citation} ({s.licence})" for s in known_datasets()}
    names = " ".join(_datasets_of_protocols(recipes()))
    return Card(
        title=TITLE,
        answers=_answers(record),
        trained_on=training_datasets_of(record, sources),
        evaluations=evaluations,
        limits=LIMITS,
        command=f"for name in {names}; do forerun data pull $name; done\nmake train",
        created=datetime.now(UTC).date().isoformat(),
        commit=tracking.git_commit(),
        versions=tracking.versions_of(PACKAGES),
    )
