"""Turn an evaluation into leaderboard entries, grouped by the runs they are stored under."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from forerun import __version__
from forerun.data.bundle import Bundle
from forerun.models.answers.whole import WholeAnswers
from forerun.models.artifact.sealed_folder import sealed_version
from forerun.training.evaluation.evaluate import rows
from forerun.training.evaluation.predictions import TaskPredictions, grouped
from forerun.training.evaluation.stored import released_artifact
from forerun.training.leaderboard.entries import Entry
from forerun.training.leaderboard.store import (
    NO_SCORE,
    EvaluationRun,
    ResultStore,
    Row,
    command,
    entry_of,
)
from forerun.training.protocols.protocol import DatasetProtocols
from forerun.training.scores.errors import mean_and_standard_error
from forerun.training.tracking import runs as tracking


def entries_of(
    run: EvaluationRun,
    predictions: Sequence[TaskPredictions],
    date: datetime | None = None,
    versions: Mapping[str, str] | None = None,
) -> list[Entry]:
    """Entries of one evaluation run, and of the baselines on the same rows.

    Args:
        run: the evaluation run.
        predictions: predictions of one predictor at one number of shots, of all folds and seeds.
        date: when they were made; now when None.
        versions: package -> version that made them; the versions of this process when None.
    """
    provenance: dict[str, Any] = {
        "seeds": run.seeds,
        "date": (date or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="microseconds"),
        "commit": run.commit,
        "digest": run.digest,
        "environment": tracking.environment() if versions is None else versions,
    }
    entries = []
    systems = dict.fromkeys(system for a in predictions for system in a.baselines)
    for system in (None, *systems):
        of_system = [
            _as_if_by(a, system) for a in predictions if system is None or system in a.baselines
        ]
        tasks = [(a.shots, a.task) for a in of_system]
        shots = {(t.name, t.device, t.metric): given or t.support.shots for given, t in tasks}
        by_seed = sorted(grouped(of_system, lambda prediction: prediction.seed).items())
        scored: Iterator[Row] = (row for _, of_seed in by_seed for row in rows(of_seed))
        per_task = grouped(scored, lambda row: (row["task"], row["device"], row["metric"]))
        for task, seeds in per_task.items():
            # A deterministic baseline has the same score for every seed, hence no standard error.
            same = system is not None and not shots[task]
            row: Row = seeds[0] if same else _averaged(seeds)
            given = {**provenance, "shots": shots[task]} | ({"seeds": 1} if same else {})
            entry = entry_of(run.dataset, run.protocol, row, system, given)
            if entry.kind == "published" and not entry.n:
                continue  # Nothing was published for these rows.
            entries.append(replace(entry, command=command(entry, predictions[0].predictor)))
    return entries


def _as_if_by(prediction: TaskPredictions, system: str | None) -> TaskPredictions:
    """The same rows, with the predictions of a baseline in place of the predictor's."""
    if system is None:
        return prediction
    nothing = np.full(len(prediction.columns["measured"]), np.nan)
    of_baseline = {"predicted": prediction.baselines[system], "low": nothing, "high": nothing}
    columns = {**prediction.columns, **of_baseline}
    return replace(prediction, columns=columns, predictor=system)


def _averaged(seeds: Sequence[Row]) -> Row:
    """Mean of every score over seeds, and its standard error as `NAME_standard_error`."""
    row = dict(seeds[0])
    for name in [name for name in row if name not in NO_SCORE]:
        if name.endswith("_standard_error"):
            continue
        values = [seed.get(name) for seed in seeds]
        if all(value is None or isinstance(value, int | float) for value in values):
            row[name], row[f"{name}_standard_error"] = mean_and_standard_error(values)
    return row


@dataclass(frozen=True)
class Evaluation:
    """Predictions on a whole bundle, each from a fit on the training rows of its fold.

    Attributes:
        protocols: the protocols of the dataset.
        bundle: the dataset.
        predictions: predictions of all folds and seeds.
        shots: requested size of the support set.
        seeds: number of fits.
    """

    protocols: DatasetProtocols
    bundle: Bundle
    predictions: Sequence[TaskPredictions]
    shots: int
    seeds: int


def code_version() -> str:
    """State of the code: the git commit, or the package's version outside git."""
    return tracking.code_state() or f"forerun {__version__}"


def settings_by_name(protocols: DatasetProtocols) -> dict[str, str]:
    """Predictor name -> its settings as text, for each predictor that the protocols evaluate.

    For whole answers, the settings are the version of the release.
    """
    parts = {p.name: re.sub(r" at 0x[0-9a-f]+", "", repr(p)) for p in protocols.predictors()}
    return {WholeAnswers.name: sealed_version(released_artifact()), **parts}


def entries_by_run(evaluation: Evaluation) -> Iterator[tuple[EvaluationRun, list[Entry]]]:
    """Each evaluation run, by protocol and predictor, with its entries and those of baselines."""
    settings, commit = settings_by_name(evaluation.protocols), code_version()
    dataset, digest = evaluation.protocols.dataset, evaluation.bundle.digest
    groups = grouped(
        evaluation.predictions,
        lambda prediction: (prediction.task.name.partition("/")[0], prediction.predictor),
    )
    for (protocol, predictor), predictions in groups.items():
        made = (digest, settings.get(predictor, ""), commit)
        run = EvaluationRun(dataset, protocol, predictor, evaluation.shots, evaluation.seeds, *made)
        yield run, entries_of(run, predictions)


def keep(evaluation: Evaluation, store: ResultStore) -> int:
    """Store the entries of an evaluation; returns their number."""
    count = 0
    for run, entries in entries_by_run(evaluation):
        store.keep(run, entries)
        count += len(entries)
    return count
