"""Fit every predictor on all its training rows and seal them as one artifact."""

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from forerun.data.bundle import Bundle, find
from forerun.data.datasets.imported import imported_tables
from forerun.data.device import DeviceCatalog
from forerun.data.errors import InputError
from forerun.data.measurements import Measurements
from forerun.models.artifact.examples import FILE as EXAMPLES_FILE
from forerun.models.artifact.examples import examples_text
from forerun.models.artifact.sealed_folder import Manifest, check, seal
from forerun.models.artifact.stored_predictor import contained, load_part, stored_name
from forerun.models.artifact.training_record import Judged, Setting, TrainingRecord
from forerun.models.own_tables import TableBoost
from forerun.models.predictor import Composed, Predictor
from forerun.models.router import Router
from forerun.training.engines.jobs import LOCAL, Engine, Job, Progress
from forerun.training.protocols.recipes import Recipe, composed_predictors, recipes

Documents = Callable[[TrainingRecord], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Trained:
    """A sealed artifact and the record of its training set.

    Attributes:
        folder: folder of the artifact.
        manifest: version and hashes.
        record: digests, grouping keys and number of the training rows.
    """

    folder: Path
    manifest: Manifest
    record: TrainingRecord


def train(
    output: Path,
    *,
    names: Sequence[str] = (),
    base: Path | None = None,
    data: Mapping[str, Path] | None = None,
    judged: Mapping[str, Mapping[Setting, Judged]] | None = None,
    documents: Documents = lambda record: {},
    progress: Progress = lambda line: None,
    engine: Engine = LOCAL,
) -> Trained:
    """Fit, compose, save and seal; an existing `output` is replaced only when all is done.

    Args:
        output: folder of the artifact.
        names: predictors to fit, or imported tables to fit a predictor on; all predictors of the
            catalogue when empty. The artifact holds these and the predictors of `base`. Predictors
            of tables are asked first; predictors of `base` without a recipe are asked last.
        base: artifact whose other predictors are kept.
        data: dataset -> folder of its bundle; other datasets use the pulled bundle.
        judged: dataset -> setting -> held-out runs that were scored, stored in the
            training record.
        documents: function from the training record to further files that are sealed with the
            predictors, name -> text (model card, scores).
        progress: called with a line of text that reports progress.
        engine: runs the fits of predictors that contain no others.

    Raises:
        InputError: an unknown predictor.
        BadArtifact: `base` is damaged.
        MissingData: a bundle is missing; the message names the command that fetches it.
    """
    chosen = recipes_of(names, composable(base))
    names_of_data = [protocols.dataset for c in chosen for protocols in c.all_protocols]
    bundles = {name: find(name, (data or {}).get(name)) for name in names_of_data}
    parts = _parts(base, {recipe.predictor for recipe in chosen if not recipe.table})
    record = TrainingRecord() if base is None else TrainingRecord.read(base)
    tables = [recipe for recipe in chosen if recipe.table]
    asked = [recipe for recipe in (*tables, *recipes()) if recipe in chosen]

    def jobs(recipes_to_fit: Iterable[Recipe]) -> Iterator[Job]:
        nonlocal record
        for recipe in recipes_to_fit:
            rows, record = _training_rows(recipe, bundles, record)
            sources = " and ".join(protocols.dataset for protocols in recipe.all_protocols)
            name = f"{recipe.predictor}: fitting on {len(rows):,} rows of {sources}"
            yield Job(name, (recipe.unfitted(), rows))

    composed = composed_predictors()
    alone = engine.results(_fit, jobs(r for r in asked if r.predictor not in composed), progress)
    fitted: list[Predictor] = []
    for recipe in (*tables, *recipes()):
        before = next((part for part in parts if _is_of(part, recipe)), None)
        if before is not None:
            parts.remove(before)
        if recipe in chosen and recipe.predictor not in composed:
            fitted.append(next(alone))
        elif recipe in chosen:
            (job,) = jobs([recipe])
            whole, fitted = _composed(job.arguments[0], fitted)
            progress(job.name)
            fitted.append(_fit(whole, job.arguments[1]))
        elif before is not None:
            fitted.append(before)
    record = replace(record, judged={**record.judged, **(judged or {})})
    first = [part for part in parts if isinstance(part, TableBoost)]
    last = [part for part in parts if not isinstance(part, TableBoost)]
    return _written(Router((*first, *fitted, *last)), output, record, documents(record))


def _fit(predictor: Predictor, rows: Measurements) -> Predictor:
    return predictor.fit(rows)


def _is_of(part: Predictor, recipe: Recipe) -> bool:
    """Whether a fitted predictor was made by the recipe."""
    if isinstance(part, TableBoost):
        return part.table == recipe.table
    return part.name == recipe.predictor


def _training_rows(
    recipe: Recipe, bundles: Mapping[str, Bundle], record: TrainingRecord
) -> tuple[Measurements, TrainingRecord]:
    """Rows of all sources of a recipe, and the record extended by them."""
    devices = DeviceCatalog.load()
    parts: list[Measurements] = []
    for protocols in recipe.all_protocols:
        bundle = bundles[protocols.dataset]
        rows = protocols.training_rows(bundle, devices)
        record = record.with_rows(bundle, rows, part=bool(parts or protocols.part))
        parts.append(rows)
    return sum(parts[1:], parts[0]), record


def _parts(base: Path | None, fitted_anew: Collection[str]) -> list[Predictor]:
    """Predictors of `base` that are kept. Others are not loaded: their format may be older."""
    if base is None:
        return []
    check(base)
    kept = []
    for name, folder in _parts_of(base):
        if name not in fitted_anew:
            kept.append(folder)
        elif name in composed_predictors():
            needed = set(composed_predictors()[name]) - set(fitted_anew)
            kept += [part for part_name, part in contained(folder) if part_name in needed]
    return [load_part(folder) for folder in kept]


def _composed(whole: Predictor, fitted: Sequence[Predictor]) -> tuple[Predictor, list[Predictor]]:
    """A predictor composed with its fitted parts, and the fitted predictors it does not contain."""
    names = composed_predictors()[whole.name]
    parts = {part.name: part for part in fitted if part.name in names}
    rest = [part for part in fitted if part.name not in names]
    assert isinstance(whole, Composed)
    return whole.with_parts(parts), rest


def composable(base: Path | None) -> frozenset[str]:
    """Composed predictors that an artifact contains, or all of whose parts it contains."""
    if base is None:
        return frozenset()
    check(base)
    kinds = {name for name, _ in _parts_of(base)}
    return frozenset(
        whole
        for whole, parts in composed_predictors().items()
        if whole in kinds or set(parts) <= kinds
    )


def _parts_of(base: Path) -> list[tuple[str, Path]]:
    """Name and folder of each predictor in an artifact: the router's parts, or the only one."""
    name = stored_name(base)
    return contained(base) if name == Router.name else [(name, base)]


def recipes_of(names: Sequence[str], composed: Collection[str] = ()) -> list[Recipe]:
    """Recipes of the named predictors and of the predictors that contain them.

    Args:
        names: predictors to fit, or imported tables to fit a predictor on; all predictors of the
            catalogue when empty.
        composed: composed predictors whose parts are in an earlier artifact, so that parts that
            are not named need not be fitted again.

    Raises:
        InputError: an unknown predictor or table.
    """
    known = list(dict.fromkeys(recipe.predictor for recipe in recipes()))
    tables = imported_tables() if set(names) - set(known) else {}
    unknown = [name for name in names if name not in known and name not in tables]
    if unknown:
        raise InputError(
            f"No predictor and no imported table is named {unknown[0]!r}; there are "
            f"{', '.join((*known, *tables))}."
        )
    of_tables = [Recipe(TableBoost.name, (name,)) for name in names if name in tables]
    wanted = set(names) - set(tables)
    for whole, parts in composed_predictors().items():
        if set(parts) <= wanted or (whole in composed and wanted & set(parts)):
            wanted.add(whole)
        elif whole in wanted and whole not in composed:
            wanted |= set(parts)
    named = [recipe for recipe in recipes() if not names or recipe.predictor in wanted]
    return [*of_tables, *named]


def _written(
    predictor: Predictor,
    output: Path,
    record: TrainingRecord,
    documents: Mapping[str, str],
) -> Trained:
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as place:
        folder = Path(place) / output.name
        predictor.save(folder)
        record.write(folder)
        (folder / EXAMPLES_FILE).write_text(examples_text(predictor))
        for name, text in documents.items():
            (folder / name).write_text(text)
        manifest = seal(folder, datetime.now(UTC).date().isoformat())
        if output.exists():
            shutil.rmtree(output)
        folder.rename(output)
    return Trained(output, manifest, record)
