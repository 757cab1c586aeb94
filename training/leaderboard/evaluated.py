"""Entries of one evaluation by protocol, and the evaluation runs that a store keeps them under."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from forerun import __version__
from forerun.data.bundle import Bundle
from forerun.models.answers.whole import WholeAnswers
from forerun.models.artifact.sealed_folder import sealed_version
from forerun.training.evaluation.predictions import TaskPredictions
from forerun.training.evaluation.stored import released_artifact
from forerun.training.leaderboard.entries import Entry
from forerun.training.leaderboard.from_predictions import entries_of
from forerun.training.leaderboard.store import EvaluationRun, ResultStore
from forerun.training.protocols import DatasetProtocols
from forerun.training.tracking import runs as tracking
from forerun.training.tracking.environment import environment


@dataclass(frozen=True)
class Evaluation:
    """Predictions on a whole bundle, each from a fit on the training rows of its fold.

    Attributes:
        protocols: the protocols of the dataset.
        bundle: its rows.
        predictions: of all folds and seeds.
        shots: requested size of the support set.
        seeds: number of fits.
    """

    protocols: DatasetProtocols
    bundle: Bundle
    predictions: Sequence[TaskPredictions]
    shots: int
    seeds: int


def code_version() -> str:
    """State of the code: the git commit, or the version outside git."""
    return tracking.code_state() or f"forerun {__version__}"


def settings_by_name(protocols: DatasetProtocols) -> dict[str, str]:
    """Name of each predictor that the protocols evaluate -> its settings as text.

    Those of whole answers are the version of the release.
    """
    parts = {p.name: re.sub(r" at 0x[0-9a-f]+", "", repr(p)) for p in protocols.predictors()}
    return {WholeAnswers.name: sealed_version(released_artifact()), **parts}


def entries_by_run(evaluation: Evaluation) -> Iterator[tuple[EvaluationRun, list[Entry]]]:
    """Each evaluation run, by protocol and predictor, with its entries and those of baselines."""
    settings, commit = settings_by_name(evaluation.protocols), code_version()
    groups: dict[tuple[str, str], list[TaskPredictions]] = {}
    for each in evaluation.predictions:
        key = (each.task.name.partition("/")[0], each.predictor)
        groups.setdefault(key, []).append(each)
    provenance = {
        "seeds": evaluation.seeds,
        "date": datetime.now(UTC).isoformat(timespec="microseconds"),
        "commit": commit,
        "digest": evaluation.bundle.digest,
        "environment": environment(),
    }
    for (protocol, predictor), predictions in groups.items():
        dataset = evaluation.protocols.dataset
        run = EvaluationRun(
            dataset=dataset,
            protocol=protocol,
            predictor=predictor,
            shots=evaluation.shots,
            seeds=evaluation.seeds,
            digest=evaluation.bundle.digest,
            settings=settings.get(predictor, ""),
            commit=commit,
        )
        yield run, entries_of(dataset, protocol, predictions, provenance)


def keep(evaluation: Evaluation, store: ResultStore) -> int:
    """Store the entries of an evaluation; returns their number."""
    count = 0
    for run, entries in entries_by_run(evaluation):
        store.keep(run, entries)
        count += len(entries)
    return count
