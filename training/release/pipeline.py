"""`forerun train`: evaluate and fit predictors, seal them as an artifact, track and register it."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from forerun.data.bundle import find
from forerun.data.datasets import all_datasets
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.catalog import catalog, unfitted
from forerun.training import plots as figures
from forerun.training.evaluation.breakdown import conditional_coverage
from forerun.training.evaluation.evaluate import rows, run_protocols
from forerun.training.evaluation.predictions import TaskPredictions
from forerun.training.protocols import protocols_of_dataset
from forerun.training.release import registry
from forerun.training.release.card import Card, package_versions, training_datasets_of
from forerun.training.release.fit import Recipe, Trained, composable, recipes, recipes_of, train
from forerun.training.tracking import runs as tracking

Progress = Callable[[str], None]
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
    judge: bool = True,
    protocols: Sequence[str] = (),
    track: bool = True,
    progress: Progress = lambda line: None,
) -> dict[str, Any]:
    """Evaluate under every protocol, fit on all rows, seal with card and scores, and register.

    Args:
        output: folder of the artifact.
        names: predictors to fit; all when empty.
        base: artifact whose other predictors, and their scores, are kept.
        data: folder that holds bundles by dataset name; the pulled ones when None.
        judge: whether to run the protocols first; without them the card has no scores.
        protocols: names of the protocols to run; all when empty.
        track: whether to log the run in MLflow and register the version (needs the train extra).
        progress: called with a line of text that reports progress.

    Returns:
        `folder`, `version`, `registered` (None when not tracked), and the evaluations.

    Raises:
        MissingData: a bundle is missing.
        MissingExtra: tracking without the train extra.
    """
    chosen = recipes_of(names, composable(base))
    needed = dict.fromkeys(
        protocols.dataset for recipe in chosen for protocols in recipe.all_protocols
    )
    folders = {name: data / name for name in needed} if data is not None else {}
    datasets = _evaluated_datasets(chosen) if judge else []
    predictions = {
        name: _evaluated(name, folders.get(name), protocols, progress) for name in datasets
    }
    evaluations = [_evaluation(*pair) for pair in predictions.items()]
    kept = [e for e in _scores_of(base) if e["dataset"] not in predictions]

    def documents(record: TrainingRecord) -> dict[str, str]:
        scored = [*kept, *evaluations]
        scores = json.dumps(scored, indent=1) + "\n"
        return {"card.md": _card(record, scored).markdown(), "scores.json": scores}

    made = train(
        output, names=names, base=base, data=folders, documents=documents, progress=progress
    )
    registered = _tracked(made, evaluations, predictions) if track else None
    return {
        "folder": str(made.folder),
        "version": made.manifest.version,
        "registered": registered,
        "evaluations": evaluations,
    }


def _evaluation(dataset: str, predictions: Sequence[TaskPredictions]) -> dict[str, Any]:
    """Scores of one dataset, as stored in `scores.json`."""
    return {
        "dataset": dataset,
        "tasks": rows(predictions),
        "conditional_coverage": conditional_coverage(predictions),
        "seeds": 1,
        "shots": 0,
        "commit": tracking.git_commit(),
    }


def _evaluated_datasets(chosen: Sequence[Recipe]) -> list[str]:
    """Datasets of these recipes, except those that evaluate the predictor of another recipe."""
    elsewhere = {recipe.evaluated_on for recipe in recipes()}
    elsewhere -= {recipe.evaluated_on for recipe in chosen}
    names = dict.fromkeys(
        protocols.dataset for recipe in chosen for protocols in recipe.all_protocols
    )
    return [name for name in names if name not in elsewhere]


def _evaluated(
    name: str, folder: Path | None, protocols: Sequence[str], progress: Progress
) -> list[TaskPredictions]:
    bundle = find(name, folder)
    return list(
        run_protocols(protocols_of_dataset(name), bundle, protocols=protocols, progress=progress)
    )


def _scores_of(base: Path | None) -> list[dict[str, Any]]:
    file = None if base is None else base / "scores.json"
    if file is None or not file.is_file():
        return []
    evaluations: list[dict[str, Any]] = json.loads(file.read_text())
    return evaluations


def _answers() -> list[str]:
    """What each released predictor predicts, in the order in which the router asks them."""
    entries = catalog()
    return [f"{e.answers}, by `{name}`" for name, e in entries.items() if e.trained_on]


def _card(record: TrainingRecord, evaluations: Sequence[Mapping[str, Any]]) -> Card:
    sources = {cls.name: f"{cls.citation} ({cls.licence})" for cls in all_datasets()}
    all_protocols = [protocols for recipe in recipes() for protocols in recipe.all_protocols]
    names = " ".join(dict.fromkeys(protocols.dataset for protocols in all_protocols))
    return Card(
        title=TITLE,
        answers=_answers(),
        trained_on=training_datasets_of(record, sources),
        evaluations=evaluations,
        limits=LIMITS,
        command=f"for name in {names}; do forerun data pull $name; done\nmake train",
        created=datetime.now(UTC).date().isoformat(),
        commit=tracking.git_commit(),
        versions=package_versions(),
    )


def _tracked(
    made: Trained,
    evaluations: Sequence[Mapping[str, Any]],
    predictions: Mapping[str, Sequence[TaskPredictions]],
) -> int:
    with tracking.tracked("train") as run, tempfile.TemporaryDirectory() as place:
        names = dict.fromkeys(recipe.predictor for recipe in recipes())
        run.parameters({name: repr(unfitted(name))[:500] for name in names})
        for name, count in made.record.rows.items():
            run.dataset(name, made.record.digests[name], count)
        for evaluation in evaluations:
            for task in evaluation["tasks"]:
                label = f"{evaluation['dataset']}/{task['task']}/{task['device'] or 'all'}"
                run.scores(label, {k: v for k, v in task.items() if _is_number(v)})
        for picture in _pictures(Path(place), predictions):
            run.figure(picture)
        run.card((made.folder / "card.md").read_text())
        return registry.register(run, made.folder)


def _pictures(folder: Path, predictions: Mapping[str, Sequence[TaskPredictions]]) -> list[Path]:
    pictures = []
    for name, of_dataset in predictions.items():
        if not of_dataset:
            continue
        measured = np.concatenate([a.columns["measured"] for a in of_dataset])
        predicted = np.concatenate([a.columns["predicted"] for a in of_dataset])
        groups = [a.task.name for a in of_dataset for _ in range(len(a.columns["measured"]))]
        metric = of_dataset[0].task.metric
        title = f"{name}: predicted against measured"
        pictures.append(
            figures.parity(
                folder / f"{name}-parity.png",
                measured,
                predicted,
                groups,
                metric_name=metric,
                title=title,
            )
        )
        pictures.append(
            figures.error_by_class(folder / f"{name}-errors.png", _errors(rows(of_dataset)))
        )
    return pictures


def _errors(tasks: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """System -> task -> mean absolute percentage error; ours first, then the baselines."""
    ours = {_label(task): task["mape"] for task in tasks}
    systems = dict.fromkeys(system for task in tasks for system in task["baselines"])
    return {"forerun": ours} | {
        system: {_label(task): task["baselines"].get(system) for task in tasks}
        for system in systems
    }


def _label(task: Mapping[str, Any]) -> str:
    return f"{task['task']} {task['device'] or ''}".strip()


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
