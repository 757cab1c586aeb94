"""`forerun train`: evaluate and fit predictors, seal them as an artifact, track and register it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from forerun.data.bundle import Bundle, find
from forerun.data.datasets import imported_tables, known_datasets
from forerun.data.errors import MissingData, SlicesGotWorse
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.catalog import catalog, training_datasets
from forerun.models.own_tables import TableBoost
from forerun.training.engines.jobs import LOCAL, Engine, Progress
from forerun.training.evaluation.cells import settings_judged
from forerun.training.evaluation.evaluate import evaluation_of, run_protocols
from forerun.training.evaluation.predictions import TaskPredictions
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
from forerun.training.release.card import PACKAGES, Card, training_datasets_of
from forerun.training.release.fit import composable, recipes_of, train
from forerun.training.release.promotion import in_slices, not_judged
from forerun.training.release.tracked_release import track_release
from forerun.training.tracking import runs as tracking

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
