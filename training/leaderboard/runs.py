"""Evaluate predictors for the leaderboard; an interrupted evaluation resumes where it stopped."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from forerun.data.bundle import Bundle, find
from forerun.data.device import DeviceCatalog
from forerun.data.errors import InputError, MissingData
from forerun.models.answers.whole import WholeAnswers
from forerun.training.engines.jobs import LOCAL, Engine, Job, Progress
from forerun.training.evaluation.evaluate import check_known, fit_and_predict, fold_jobs
from forerun.training.evaluation.refit import Refits
from forerun.training.evaluation.stored import released_artifact
from forerun.training.leaderboard.entries import FIELDS, Entry, Leaderboard
from forerun.training.leaderboard.evaluated import code_version, entries_of, settings_by_name
from forerun.training.leaderboard.store import EvaluationRun, ResultStore
from forerun.training.protocols import DATASET_PROTOCOLS, protocols_of_dataset
from forerun.training.protocols.protocol import DatasetProtocols, Fold
from forerun.training.tracking import runs as tracking

Jobs = Iterator[Job]


@dataclass(frozen=True)
class Plan:
    """What to evaluate.

    Attributes:
        datasets: names of datasets; all that have protocols when empty.
        protocols: names of protocols; all when empty.
        predictors: names of predictors to evaluate alone; whole answers when empty.
        shots: sizes of the support set; 0 is the task's default.
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

    Each evaluation run is stored as soon as it is finished, so that an interruption costs only the
    unfinished ones.

    Args:
        plan: what to evaluate.
        store: finished evaluation runs; new ones are added.
        progress: called with a line of text that reports progress.
        engine: runs the fits.

    Returns:
        Entries of all evaluation runs of the plan, including those finished earlier.

    Raises:
        UnknownDataset: a dataset has no protocols.
        MissingData: a dataset that the plan names is missing; if it names none, missing datasets
            are skipped.
        InputError: there is no predictor or protocol of that name.
    """
    chosen = [
        protocols_of_dataset(name)
        for name in plan.datasets or [cls.dataset for cls in DATASET_PROTOCOLS]
    ]
    known = {predictor.name for protocols in chosen for predictor in protocols.predictors()}
    check_known("predictor", plan.predictors, sorted({*known, WholeAnswers.name}), "here")
    found: list[Sequence[Entry]] = []
    for protocols in chosen:
        folder = None if plan.data is None else plan.data / protocols.dataset
        try:
            bundle = find(protocols.dataset, folder)
        except MissingData as error:
            if plan.datasets:
                raise
            progress(f"left out: {error}")
            continue
        found += _evaluated(protocols, bundle, plan, store, progress, engine)
    if plan.protocols and not found:
        raise InputError(f"No protocol {', '.join(plan.protocols)} in these datasets.")
    return [entry for entries in found for entry in entries]


def _evaluated(
    protocols: DatasetProtocols,
    bundle: Bundle,
    plan: Plan,
    store: ResultStore,
    progress: Progress,
    engine: Engine,
) -> Iterator[Sequence[Entry]]:
    """Entries of each evaluation run of a dataset, from the store or evaluated now."""
    refit = partial(Refits(released_artifact()).of, protocols, bundle)
    commit = code_version()
    wanted = plan.predictors or (WholeAnswers.name,)
    predictors = [pair for pair in settings_by_name(protocols).items() if pair[0] in wanted]
    folds = protocols.checked_folds(bundle, DeviceCatalog.load())
    done: set[str] = set()
    for protocol, group in groupby(folds, key=lambda fold: fold.protocol):
        if plan.protocols and protocol not in plan.protocols:
            continue
        if protocol in done:
            raise ValueError(f"folds of {protocol} must follow one another")
        done.add(protocol)
        protocol_folds = list(group)
        for name, settings in predictors:
            runs = {
                shots: EvaluationRun(
                    protocols.dataset,
                    protocol,
                    name,
                    shots,
                    plan.seeds,
                    bundle.digest,
                    settings,
                    commit,
                )
                for shots in plan.shots
            }

            def jobs(
                shots: Sequence[int],
                name: str = name,
                protocol_folds: Sequence[Fold] = protocol_folds,
            ) -> Jobs:
                names = [] if name == WholeAnswers.name else [name]
                for fold in protocol_folds:
                    yield from fold_jobs(protocols, fold, shots, plan.seeds, names, refit)

            yield from _stored_or_fitted(runs, jobs, store, progress, engine)


def _stored_or_fitted(
    runs: dict[int, EvaluationRun],
    jobs: Callable[[Sequence[int]], Jobs],
    store: ResultStore,
    progress: Progress,
    engine: Engine,
) -> Iterator[Sequence[Entry]]:
    """Entries of the runs of one predictor under one protocol, by number of shots."""
    for shots, evaluation_run in list(runs.items()):
        held = store.finished(evaluation_run)
        if held is not None:
            progress(f"{_line(runs.pop(shots))}: finished before")
            yield held
    if not runs:
        return
    predictions = list(engine.results(fit_and_predict, jobs([*runs]), progress))
    for shots, evaluation_run in runs.items() if predictions else ():
        at_shots = [each for fit in predictions for each in fit if each.shots == shots]
        entries = entries_of(evaluation_run, at_shots) if at_shots else []
        store.keep(evaluation_run, entries)
        progress(f"{_line(evaluation_run)}: {len(entries)} entries kept")
        yield entries


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
        The MLflow run id.

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
