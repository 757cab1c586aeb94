"""Refit a release without the rows that a fold holds out, to score its whole answers.

Every part of the release that may answer the tasks of a fold is fitted on all its sources, without
the rows that share a held-out value (`Fold.without`). A part that loses no row is taken from the
released artifact, provided that the artifact was trained on the same bundles. Fits are cached in
FORERUN_HOME/fits, which may be deleted at any time.
"""

import hashlib
import inspect
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.data.bundle import Bundle, find, home
from forerun.data.columns import Mask
from forerun.data.device import DeviceCatalog
from forerun.data.errors import BadArtifact
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.models.answers.served_models import InUse
from forerun.models.answers.whole import WholeAnswers
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.models.artifact.stored_predictor import contained, load_part
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.catalog import PREDICTORS, Scope, catalog
from forerun.models.limit import LATENCY, POWER
from forerun.models.own_tables import TableBoost
from forerun.models.predictor import Composed, Predictor
from forerun.models.router import Router
from forerun.training.protocols.own_tables import OwnTableProtocols
from forerun.training.protocols.protocol import DatasetProtocols, Fold, held_out_rows, names_of
from forerun.training.protocols.recipes import Recipe, composed_predictors, recipes
from forerun.training.tracking.runs import environment

FITS: Final = "fits"
"""Folder of cached fits in FORERUN_HOME."""
LIBRARIES: Final = ("lightgbm", "numpy", "scipy", "scikit-learn", "torch")
"""Libraries whose versions a fit depends on."""


@dataclass(frozen=True)
class Part:
    """One predictor of a refit: its stored folder, or the rows to fit it on.

    Attributes:
        recipe: the predictor and its sources.
        seed: seed of the fit.
        stored: folder of the same fit in the released artifact; None if it has to be fitted.
        rows: training rows; None for a stored part.
        parts: predictors that it contains.
        key: digest of everything the fit depends on; empty for a stored part.
    """

    recipe: Recipe
    seed: int = 0
    stored: Path | None = None
    rows: Measurements | None = None
    parts: tuple["Part", ...] = ()
    key: str = ""

    @property
    def is_cached(self) -> bool:
        """Whether no fit is necessary."""
        return self.stored is not None or _place(self.key).is_dir()

    def fitted(self) -> Predictor:
        """The predictor from the artifact or the cache, or fitted now and cached.

        Raises:
            BadArtifact: the released artifact is damaged.
        """
        if self.stored is not None:
            return load_part(self.stored)
        place = _place(self.key)
        try:
            if place.is_dir():
                return load_part(place)
        except BadArtifact:
            shutil.rmtree(place)
        assert self.rows is not None
        whole = self.recipe.unfitted(self.seed)
        if self.parts:
            assert isinstance(whole, Composed)
            whole = whole.with_parts({part.recipe.predictor: part.fitted() for part in self.parts})
        predictor = whole.fit(self.rows)
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            predictor.save(Path(folder) / "fit")
            if not place.exists():
                (Path(folder) / "fit").rename(place)
        return predictor

    def to_fit(self) -> Iterator[str]:
        """Each predictor that has to be fitted, with its number of rows."""
        if not self.is_cached:
            assert self.rows is not None
            for part in self.parts:
                yield from part.to_fit()
            yield f"{self.recipe.predictor} ({len(self.rows):,} rows)"


@dataclass(frozen=True)
class Refit:
    """A release without the rows that a fold holds out.

    Attributes:
        parts: predictors in the order in which the router asks them.
        record: record of their training rows, from which grades are derived.
    """

    parts: tuple[Part, ...]
    record: TrainingRecord

    def answers(self, metrics: Sequence[str]) -> WholeAnswers:
        """The whole answers of the release; fits the parts that are not stored."""
        router = Router(tuple(part.fitted() for part in self.parts))
        loaded = LoadedPredictor(router, "refit", "", "", self.record)
        return WholeAnswers(InUse(loaded), tuple(metrics))

    def text(self) -> str:
        """What has to be fitted, as a line of progress."""
        names = [name for part in self.parts for name in part.to_fit()]
        return f"fitting {', '.join(names)}" if names else "all fits are stored"


@dataclass
class Refits:
    """Refits of a release; the training rows of each source are read once.

    Attributes:
        artifact: folder of the released predictors, with their training record.
        data: dataset -> folder of its bundle; datasets without an entry use the pulled bundle.
        anew: predictors that are always refitted, because the new release fits them again.
    """

    artifact: Path
    data: Mapping[str, Path] = field(default_factory=dict)
    anew: frozenset[str] = frozenset()
    _bundles: dict[str, Bundle] = field(default_factory=dict)
    _rows: dict[str, Measurements] = field(default_factory=dict)
    _names: dict[tuple[str, str], list[frozenset[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.released = TrainingRecord.read(self.artifact)
        self.folders = _folders(self.artifact)

    def of(self, protocols: DatasetProtocols, bundle: Bundle, fold: Fold, seed: int = 0) -> Refit:
        """The release without the rows that a fold holds out.

        Args:
            protocols: protocols of the fold's dataset.
            bundle: the bundle of the fold.
            fold: from `DatasetProtocols.checked_folds`.
            seed: seed of the fits.

        Raises:
            MissingData: the bundle of a source is not on this machine.
        """
        self._bundles[protocols.dataset] = bundle
        record = TrainingRecord(judged=self.released.judged)
        parts: list[Part] = []
        inside = {name for names in composed_predictors().values() for name in names}
        folders = {name: iter(paths) for name, paths in self.folders.items()}
        for recipe in recipes():
            stored = None if recipe.table else next(folders.get(recipe.predictor, iter(())), None)
            if recipe.predictor in inside or not _may_answer(recipe, stored, fold):
                continue
            part, record = self._part(recipe, stored, fold, seed, record)
            if part is not None:
                parts.append(part)
        return Refit(tuple(parts), record)

    def _part(
        self, recipe: Recipe, stored: Path | None, fold: Fold, seed: int, record: TrainingRecord
    ) -> tuple[Part | None, TrainingRecord]:
        folders = {} if stored is None else dict(contained(stored))
        parts: list[Part] = []
        for inner in recipes():
            if inner.predictor in composed_predictors().get(recipe.predictor, ()):
                part, record = self._part(inner, folders.get(inner.predictor), fold, seed, record)
                parts += [] if part is None else [part]
        same = stored is not None and recipe.predictor not in self.anew
        same = same and all(part.stored is not None for part in parts)
        found: list[Measurements] = []
        for source, protocols in zip(recipe.sources, recipe.all_protocols, strict=True):
            rows, whole = self._rows_without(source, protocols, fold)
            bundle = self._bundle(protocols.dataset)
            record = record.with_rows(bundle, rows, part=bool(found or protocols.part))
            same = same and whole and self.released.knows(bundle)
            found.append(rows)
        if same:
            return Part(recipe, stored=stored, parts=tuple(parts)), record
        rows = sum(found[1:], found[0])
        if not len(rows) and not parts:
            return None, record
        facts = (recipe.predictor, *recipe.sources, str(seed), code_digest(recipe), digest(rows))
        keys = [part.key or str(part.stored and self.released.digests) for part in parts]
        key = hashlib.sha256("\n".join((*facts, *keys)).encode()).hexdigest()[:32]
        return Part(recipe, seed, None, rows, tuple(parts), key), record

    def _rows_without(
        self, source: str, protocols: DatasetProtocols, fold: Fold
    ) -> tuple[Measurements, bool]:
        """Training rows of a source without held-out ones, and whether no row was dropped."""
        if source == fold.source:
            return fold.train, False
        if source not in self._rows:
            bundle = self._bundle(protocols.dataset)
            self._rows[source] = protocols.training_rows(bundle, DeviceCatalog.load())
        rows = self._rows[source]
        kept = ~self._held_out(source, rows, fold)
        return (rows, True) if kept.all() else (rows.take(kept), False)

    def _held_out(self, source: str, rows: Measurements, fold: Fold) -> Mask:
        held = np.zeros(len(rows), dtype=np.bool_)
        for key, values in fold.without.items():
            if (source, key) not in self._names:
                self._names[source, key] = names_of(rows, key)
            held |= [not values.isdisjoint(names) for names in self._names[source, key]]
        return held

    def _bundle(self, dataset: str) -> Bundle:
        if dataset not in self._bundles:
            self._bundles[dataset] = find(dataset, self.data.get(dataset))
        return self._bundles[dataset]


def predictors_of_others(protocols: DatasetProtocols) -> tuple[str, ...]:
    """Predictors that train on a user's imported table, or on the dataset of another package.

    Each is the whole recipe for such rows: no part of the release is trained on them, and no public
    dataset is needed.
    """
    if isinstance(protocols, OwnTableProtocols):
        return (TableBoost.name,)
    others = (recipe for recipe in recipes() if recipe.predictor not in PREDICTORS)
    return tuple(own.predictor for own in others if protocols.dataset in own.sources)


def digest(rows: Measurements) -> str:
    """Digest of queries, values, grouping keys and weights; equal rows give equal fits."""
    found = hashlib.sha256()
    known: dict[int, bytes] = {}
    for part in (rows.queries, dict(rows.values), dict(rows.groups), rows.weights):
        found.update(_digested(part, known))
    return found.hexdigest()


def _digested(value: Any, known: dict[int, bytes]) -> bytes:
    """Digest of a value; `known` caches digests by `id`, valid while the whole value is alive."""
    if isinstance(value, np.ndarray):
        content = value if value.dtype.kind != "U" else np.char.encode(value, "utf-8")
        return hashlib.sha256(f"{value.shape}".encode() + _unpadded(content)).digest()
    if isinstance(value, Mapping):
        pairs = ((repr(k).encode(), _digested(v, known)) for k, v in sorted(value.items()))
        return hashlib.sha256(b"\0".join(x for pair in pairs for x in pair)).digest()
    if isinstance(value, list | tuple):
        return hashlib.sha256(b"\0".join(_digested(item, known) for item in value)).digest()
    if id(value) not in known:
        known[id(value)] = hashlib.sha256(_text(value, known)).digest()
    return known[id(value)]


def _text(value: Any, known: dict[int, bytes]) -> bytes:
    """Text that distinguishes an object from others of its type."""
    if isinstance(value, OperatorGraph):
        return f"{value.digest} {value.source}".encode()
    if is_dataclass(value) and not isinstance(value, Operator):
        digests = (_digested(getattr(value, f.name), known) for f in fields(value))
        return b"\0".join((type(value).__name__.encode(), *digests))
    return repr(value).encode()


def _unpadded(content: np.ndarray) -> bytes:
    """Content of an array, independent of the padding to its longest string."""
    return b"\0".join(content.ravel().tolist()) if content.dtype.kind == "S" else content.tobytes()


@cache
def code_digest(recipe: Recipe) -> str:
    """Digest of the code that a fit depends on: features, models, library versions, and the module
    of a predictor that comes from another package.
    """
    versions = environment(LIBRARIES)
    found = hashlib.sha256(repr([versions.get(name) for name in LIBRARIES]).encode())
    roots = [Path(str(files(f"forerun.{floor}"))) for floor in ("features", "models")]
    paths = [path for root in roots for path in sorted(root.resolve().rglob("*.py"))]
    module = inspect.getsourcefile(type(recipe.unfitted()))
    for path in (*paths, *([Path(module)] if module else ())):
        found.update(path.read_bytes())
    return found.hexdigest()


def _place(key: str) -> Path:
    return home() / FITS / key


def _folders(artifact: Path) -> dict[str, list[Path]]:
    """Predictor name -> its folders in a released artifact, in the artifact's order."""
    found: dict[str, list[Path]] = {}
    for name, folder in contained(artifact):
        found.setdefault(name, []).append(folder)
    return found


def needed_metrics(fold: Fold) -> frozenset[str]:
    """The metrics that are needed to answer the tasks of a fold."""
    asked = {task.metric for task in fold.tasks}
    limited = any(q.operation.power_limit_w for task in fold.tasks for q in task.held_out.queries)
    if "energy_j" in asked or limited:
        asked |= {POWER}
    return frozenset(asked | ({LATENCY} if asked & {POWER, "utilisation"} else set()))


def _may_answer(recipe: Recipe, stored: Path | None, fold: Fold) -> bool:
    """Whether a predictor may take part in answering a task of a fold."""
    queries = held_out_rows(fold.tasks).queries
    entry = catalog().get(recipe.predictor)
    kinds = frozenset(query.workload.kind for query in queries)
    devices = frozenset(query.device.kind for query in queries)
    if entry is not None and not Scope(kinds, devices).concerns(recipe.predictor):
        return False
    predictor = recipe.unfitted() if stored is None else _loaded(stored)
    if not needed_metrics(fold).intersection(predictor.metrics):
        return False
    return stored is None or any(map(predictor.answers, queries))


@cache
def _loaded(folder: Path) -> Predictor:
    return load_part(folder)
