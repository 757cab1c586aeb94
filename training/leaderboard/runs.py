"""Evaluate predictors for the leaderboard; an interrupted evaluation continues where it stopped."""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from forerun.data.bundle import Bundle, find
from forerun.data.device import DeviceCatalog
from forerun.data.errors import InputError, MissingData
from forerun.models.answers.whole import WholeAnswers
from forerun.training.engines.jobs import LOCAL, Engine, Job, Progress
from forerun.training.evaluation.evaluate import answer_jobs, fit_and_predict, fold_jobs
from forerun.training.evaluation.predictions import TaskPredictions
from forerun.training.evaluation.refit import Refits
from forerun.training.evaluation.stored import released_artifact
from forerun.training.leaderboard.entries import FIELDS, Entry, Leaderboard
from forerun.training.leaderboard.evaluated import code_version, entries_of, settings_by_name
from forerun.training.leaderboard.store import EvaluationRun, ResultStore
from forerun.training.protocols import (
    DATASET_PROTOCOLS,
    DatasetProtocols,
    Fold,
    protocols_of_dataset,
)
from forerun.training.tracking import runs as tracking
from forerun.training.tracking.runs import environment


@dataclass(frozen=True)
class Plan:
    """What to evaluate.

    Attributes:
        datasets: names of datasets; all that have protocols when empty.
        protocols: names of protocols; all when empty.
        predictors: names of predictors by themselves; whole answers when empty.
        shots: sizes of the support set; 0 is the task's own number.
        seeds: number of fits (or draws of the support set) to average.
        data: folder of bundles by dataset name; the pulled ones when None.
    """

    datasets: Sequence[str] = ()
    protocols: Sequence[str] = ()
    predictors: Sequence[str] = ()
    shots: Sequence[int] = (0,)
    seeds: int = 1
    data: Path | None = None


def run(
    plan: Plan,
    store: ResultStore,
    progress: Progress = lambda line: None,
    engine: Engine = LOCAL,
) -> list[Entry]:
    """Evaluate what the store does not hold yet.

    Each evaluation run is stored as soon as it is finished, so that after an interruption only the
    unfinished ones are repeated.

    Args:
        plan: what to evaluate.
        store: finished evaluation runs, to which new ones are added.
        progress: called with a line of text that reports progress.
        engine: does the fits.

    Returns:
        Entries of all evaluation runs of the plan, including those finished earlier.

    Raises:
        UnknownDataset: a dataset has no protocols.
        MissingData: a dataset that the plan names is missing; without names, missing ones are
            left out.
        InputError: there is no predictor or protocol of that name.
    """
    chosen = [
        protocols_of_dataset(name)
        for name in plan.datasets or [cls.dataset for cls in DATASET_PROTOCOLS]
    ]
    _check(plan, chosen)
    entries_found: list[Entry] = []
    count, commit = 0, code_version()
    for dataset_protocols in chosen:
        folder = None if plan.data is None else plan.data / dataset_protocols.dataset
        try:
            bundle = find(dataset_protocols.dataset, folder)
        except MissingData as error:
            if plan.datasets:
                raise
            progress(f"left out: {error}")
            continue
        for entries in _EvaluationRuns(
            dataset_protocols, bundle, plan, store, progress, engine, commit
        ).all():
            entries_found += entries
            count += 1
    if plan.protocols and not count:
        raise InputError(f"No protocol {', '.join(plan.protocols)} in these datasets.")
    return entries_found


class _Step(NamedTuple):
    """The fits of one predictor in one fold, which belong to some evaluation runs."""

    pending: Sequence[EvaluationRun]
    last: bool


@dataclass
class _EvaluationRuns:
    """Evaluation runs of one dataset; each fold is generated once for all predictors."""

    dataset_protocols: DatasetProtocols
    bundle: Bundle
    plan: Plan
    store: ResultStore
    progress: Progress
    engine: Engine
    commit: str | None
    predictions: dict[EvaluationRun, list[TaskPredictions]] = field(default_factory=dict)
    begun: set[EvaluationRun] = field(default_factory=set)
    finished: list[Sequence[Entry]] = field(default_factory=list)
    steps: deque[_Step] = field(default_factory=deque)
    refits: Refits = field(default_factory=lambda: Refits(released_artifact()))

    def all(self) -> Iterator[Sequence[Entry]]:
        """Entries of each evaluation run, from the store or evaluated now."""
        for found in self.engine.results(fit_and_predict, self._jobs(), self.progress):
            yield from self._drained()
            yield from self._kept(self.steps.popleft(), found)
        yield from self._drained()

    def _drained(self) -> Iterator[Sequence[Entry]]:
        """Entries that the store held, once each."""
        while self.finished:
            yield self.finished.pop(0)

    def _jobs(self) -> Iterator[Job]:
        """The fits that are not stored; `steps` gets one element for each."""
        over: set[str] = set()
        for fold, last in _with_last(self._folds()):
            if fold.protocol in over:
                raise ValueError(f"folds of {fold.protocol} must follow one another")
            if last:
                over.add(fold.protocol)
            for name, settings in self._predictors().items():
                pending = [*self._pending(fold.protocol, name, settings, last)]
                shots = [evaluation_run.shots for evaluation_run in pending]
                if not pending:
                    continue
                protocols, seeds = self.dataset_protocols, self.plan.seeds
                fits = (
                    answer_jobs(self.refits, protocols, self.bundle, fold, shots, seeds)
                    if name == WholeAnswers.name
                    else fold_jobs(protocols, fold, shots, seeds, [name])
                )
                for number, job in enumerate(jobs := [*fits], start=1):
                    self.steps.append(_Step(pending, last and number == len(jobs)))
                    yield job

    def _pending(
        self, protocol: str, name: str, settings: str, last: bool
    ) -> Iterator[EvaluationRun]:
        """Evaluation runs of a predictor that the store does not hold."""
        for evaluation_run in self._of(protocol, name, settings):
            held = None
            if evaluation_run not in self.begun:
                held = self.store.finished(evaluation_run)
            if held is None:
                self.begun.add(evaluation_run)
                yield evaluation_run
            elif last:
                self.progress(f"{_line(evaluation_run)}: finished before")
                self.finished.append(held)

    def _kept(
        self, step: _Step, predictions: Sequence[TaskPredictions]
    ) -> Iterator[Sequence[Entry]]:
        """Entries of evaluation runs whose last fit this is, which are stored."""
        by_shots = {evaluation_run.shots: evaluation_run for evaluation_run in step.pending}
        for prediction in predictions:
            self.predictions.setdefault(by_shots[prediction.shots], []).append(prediction)
        for evaluation_run in step.pending if step.last else ():
            entries = self._entries(evaluation_run, self.predictions.pop(evaluation_run, []))
            self.store.keep(evaluation_run, entries)
            self.progress(f"{_line(evaluation_run)}: {len(entries)} entries kept")
            yield entries

    def _entries(
        self, evaluation_run: EvaluationRun, predictions: Sequence[TaskPredictions]
    ) -> list[Entry]:
        provenance = {
            "seeds": evaluation_run.seeds,
            "date": datetime.now(UTC).isoformat(timespec="microseconds"),
            "commit": evaluation_run.commit,
            "digest": evaluation_run.digest,
            "environment": environment(),
        }
        if not predictions:
            return []
        return entries_of(evaluation_run.dataset, evaluation_run.protocol, predictions, provenance)

    def _folds(self) -> Iterator[Fold]:
        for fold in self.dataset_protocols.checked_folds(self.bundle, DeviceCatalog.load()):
            if not self.plan.protocols or fold.protocol in self.plan.protocols:
                yield fold

    def _predictors(self) -> Mapping[str, str]:
        """Name -> settings of the predictors to evaluate."""
        wanted = self.plan.predictors or (WholeAnswers.name,)
        return {
            name: settings
            for name, settings in settings_by_name(self.dataset_protocols).items()
            if name in wanted
        }

    def _of(self, protocol: str, name: str, settings: str) -> Iterator[EvaluationRun]:
        for shots in dict.fromkeys(self.plan.shots):
            yield EvaluationRun(
                dataset=self.dataset_protocols.dataset,
                protocol=protocol,
                predictor=name,
                shots=shots,
                seeds=self.plan.seeds,
                digest=self.bundle.digest,
                settings=settings,
                commit=self.commit,
            )


def _with_last(folds: Iterator[Fold]) -> Iterator[tuple[Fold, bool]]:
    """Each fold, and whether it is the last of its protocol."""
    before: Fold | None = None
    for fold in folds:
        if before is not None:
            yield before, before.protocol != fold.protocol
        before = fold
    if before is not None:
        yield before, True


def _check(plan: Plan, chosen: Sequence[DatasetProtocols]) -> None:
    known = {p.name for dataset_protocols in chosen for p in dataset_protocols.predictors()}
    known.add(WholeAnswers.name)
    unknown = [name for name in plan.predictors if name not in known]
    if unknown:
        raise InputError(f"No predictor {unknown[0]!r} here; there are {', '.join(sorted(known))}.")


def _line(evaluation_run: EvaluationRun) -> str:
    run = evaluation_run
    place = f"{run.dataset} {run.protocol}"
    return f"{place}, {run.predictor}, {run.shots} shots, {run.seeds} seeds"


def track(board: Leaderboard, files: Sequence[Path], name: str = "leaderboard") -> str:
    """Log one run in MLflow: entries as metrics, figures and the page as artifacts.

    Args:
        board: the entries.
        files: figures (`.png`) and pages to log.
        name: name of the run.

    Returns:
        MLflow's run id.

    Raises:
        MissingExtra: mlflow is not installed.
    """
    with tracking.tracked(name) as run:
        run.client.set_tag(run.id, "mlflow.source.name", "forerun leaderboard")
        run.parameters({"datasets": ", ".join(board.datasets())})
        for dataset, digest in dict.fromkeys((e.dataset, e.digest) for e in board.entries):
            if digest is not None:
                run.client.set_tag(run.id, f"dataset.{dataset}", digest)
        for entry in board.entries:
            if not entry.cited:
                run.scores(_label(entry), _scores(entry))
        run.client.log_dict(run.id, board.to_json(), "leaderboard.json")
        for path in files:
            if path.suffix == ".png":
                run.figure(path)
            else:
                run.client.log_artifact(run.id, str(path))
        return run.id


def _label(entry: Entry) -> str:
    words = (entry.dataset, entry.task, entry.device or "all", entry.predictor)
    return re.sub(r"[^\w./ -]", "_", "/".join((*words, f"{entry.shots}-shots")))


def _scores(entry: Entry) -> dict[str, Any]:
    return {
        **entry.further,
        **{name: getattr(entry, name) for name in (*FIELDS, "n")},
        entry.score: entry.value,
        f"{entry.score}_standard_error": entry.standard_error,
    }
