"""Evaluation protocols: the training rows of each fold, and the tasks scored after fitting.

A `DatasetProtocols` turns the bundle of one dataset into `Fold`s. A fold has one training set and
several `Task`s. A task is a set of held-out rows that are scored together, with baselines and
published predictions for the same rows.
"""

import re
from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.columns import Column, Mask, rows_by
from forerun.data.datasets import dataset
from forerun.data.datasets.dataset import family_of
from forerun.data.datasets.networks.published_networks import chips
from forerun.data.device import DeviceCatalog
from forerun.data.errors import BadArtifact, InputError
from forerun.data.measurements import Measurements
from forerun.data.split import LeakedRows, Split, canonical
from forerun.data.workload import Network
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.catalog import predictors_evaluated_on, unfitted
from forerun.models.predictor import Predictor
from forerun.models.router import predictors_in
from forerun.training.scores.task_scores import TaskScore

NAMES: Final = ("model", "op_shape")
"""Grouping keys whose values are names of networks, or of operators with their shapes."""
Seen = Mapping[str, Sequence[str]]
"""Grouping key -> values in the training rows of the current predictors."""
Kept = NDArray[np.intp] | slice
"""Positions of measured rows in their table; `EVERY` if all rows are queries."""
EVERY: Final = slice(None)
NEW, KNOWN = True, False
P = TypeVar("P", bound=Predictor)
Rows = Callable[[Bundle, DeviceCatalog], Measurements]
WEIGHTS_OF: Final = frozenset({"tf", "gluon", "legacy", "adv", "ssl", "swsl"})
"""Prefixes of network names that say which project or method trained the weights."""


@dataclass(frozen=True)
class Support:
    """The support set of a task, for few-shot adaptation.

    Attributes:
        shots: its default size, which the caller may override; 0 for none.
        pool: rows that it is drawn from; when None it is drawn from the held-out rows, and the rows
            drawn are not scored.
        always: rows that are added to every non-empty support set.
        suggested: whether the predictor's own `suggest` chooses it; otherwise it is drawn at random
            by seed.
        offset_by: grouping key of the baseline `median_offset`, which adapts to the same support
            set with one median offset per group; empty for no such baseline.
    """

    shots: int = 0
    pool: Measurements | None = None
    always: Measurements | None = None
    suggested: bool = False
    offset_by: str = ""


@dataclass(frozen=True)
class Task:
    """Held-out rows that are scored together under one protocol.

    Attributes:
        name: `protocol/part`, such as `unseen_device/bmm`.
        metric: column of `held_out.values` that is predicted and scored.
        held_out: the n held-out rows.
        device: the only device among them, or None for several.
        baselines: name -> predictions for these rows, shape (n,), in the metric's unit, by a simple
            rule or by another system (named `published_SYSTEM`); NaN where it gives none.
        scores: extra scores, besides the errors that every task has.
        scale: transformation of values before root mean square errors are computed; None for no
            such score.
        support: the support set that predictors adapt to.
        device_only: whether the runs do not wait for the host. The part `host` of the breakdown is
            then subtracted from the predicted latency, and there are no intervals.
    """

    name: str
    metric: str
    held_out: Measurements
    device: str | None = None
    baselines: Mapping[str, Column] = field(default_factory=dict)
    scores: Sequence[TaskScore] = ()
    scale: Callable[[Column], Column] | None = None
    support: Support = Support()
    device_only: bool = False

    def take(self, rows: Mask) -> "Task":
        """The task of the held-out rows where the mask is True."""
        return replace(
            self,
            held_out=self.held_out.take(rows),
            baselines={name: column[rows] for name, column in self.baselines.items()},
            scores=[score.take(rows) for score in self.scores],
        )


Tasks = Iterator[Task]
Sides = Iterator[tuple[str, Measurements, Measurements]]
"""Protocol, training rows, held-out rows."""
Trained = Measurements | None
"""Training rows of a fold; None if nothing is fitted."""


@dataclass(frozen=True)
class Fold:
    """One training set, and the tasks that are evaluated after fitting on it.

    Attributes:
        protocol: name of the protocol.
        train: training set of the predictor under test.
        tasks: held-out rows, by task.
        held_out: the held-out rows of the dataset, if tasks also have other rows; else None.
        source: source of the rows of `train` (`DatasetProtocols.source`); None for the source of
            the protocols, empty if `train` has rows of several sources.
        without: grouping key -> held-out values, normalised by `canonical`. A refit of a release
            drops the rows of all its sources that have one of them.
    """

    protocol: str
    train: Measurements
    tasks: Sequence[Task]
    held_out: Measurements | None = None
    source: str | None = None
    without: Mapping[str, frozenset[str]] = field(default_factory=dict)


class DatasetProtocols(ABC):
    """The evaluation protocols of one dataset: a table, its splits, and tasks of held-out rows.

    A subclass declares how rows of the table become queries (`measured`) and what is scored on
    held-out rows (`tasks`). Its splits come from `forerun.data.datasets`, or hold out each value of
    a grouping key in turn (`each_held_out`). `unseen` selects the rows to score in a folder on
    which nothing is fitted. For other layouts, override `training_rows`, `folds` or
    `evaluation_tasks`.
    """

    dataset: str
    fits_any_folder: ClassVar[bool] = False
    """Whether folds are fitted on any given folder, even if no bundled predictor knows it."""

    zero_shot: ClassVar[bool] = False
    """Whether the current predictors are scored on the whole dataset unless a protocol is named."""

    fitted_protocols: ClassVar[Sequence[str]] = ()
    """Protocols of a `zero_shot` dataset that fit predictors fold by fold."""

    reads: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Table of measurements -> columns that a user's own folder must have. One of the tables is
    enough. They are documented, and checked before anything is predicted."""

    optional: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Table -> optional column -> description of the default that replaces it."""

    joined: ClassVar[Sequence[str]] = ()
    """Tables that describe workloads; taken from the pulled bundle if a folder lacks them."""

    split_table: ClassVar[str] = ""
    """The table of `measured`, if the dataset also has splits of other tables."""

    split_protocols: ClassVar[Sequence[str]] = ()
    """Protocols of the dataset's splits that are evaluated; all when empty."""

    pooled: ClassVar[bool] = True
    """Whether splits `PROTOCOL/PART` are folds of one protocol whose tasks are scored together."""

    each_held_out: ClassVar[Mapping[str, str]] = {}
    """Protocol -> grouping key whose values are held out in turn; replaces the splits."""

    unseen: ClassVar[Mapping[str, Mapping[str, bool]]] = {}
    """Protocol -> grouping key -> `NEW` (not in the training set) or `KNOWN`: selects the rows to
    score in a folder on which nothing is fitted."""

    held_out_by: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Protocol -> grouping keys whose values it holds out, as in `Fold.without`. The default for
    other protocols is every key of which training rows and held-out rows share no value."""

    parts: ClassVar[Mapping[str, Rows]] = {}
    """Part of the dataset that trains a predictor of another dataset -> its training rows."""

    part: str = ""
    """Name of the part that `training_rows` gives; empty for the whole dataset."""

    @property
    def source(self) -> str:
        """`dataset`, or `dataset/part`: the name of these rows in recipes."""
        return f"{self.dataset}/{self.part}" if self.part else self.dataset

    def predictor(self, seed: int = 0) -> Predictor:
        """The predictor under test, unfitted (parts of a composed predictor may be fitted).

        Raises:
            InputError: the catalogue has no predictor for the dataset.
        """
        names = predictors_evaluated_on(self.dataset)
        if not names:
            raise InputError(f"No predictor is trained or evaluated on {self.dataset}.")
        return unfitted(names[0], seed)

    def predictors(self, seed: int = 0) -> Sequence[Predictor]:
        """All predictors that these protocols evaluate, unfitted; `predictor` comes first."""
        others = predictors_evaluated_on(self.dataset)[1:]
        return (self.predictor(seed), *(unfitted(name, seed) for name in others))

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, Kept]:
        """The rows of the table as queries, and their positions in it."""
        raise NotImplementedError(f"{type(self).__name__} declares no table")

    def tasks(self, protocol: str, held_out: Measurements, train: Trained) -> Tasks:
        """The tasks of held-out rows.

        Args:
            protocol: first part of the names of the tasks.
            held_out: rows that are predicted.
            train: training rows, for baselines; None if nothing is fitted.
        """
        raise NotImplementedError(f"{type(self).__name__} declares no tasks")

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All rows that the released predictors may be fitted on."""
        return self.measured(bundle, catalog)[0]

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """Folds of the published protocols and of our own, on a whole bundle."""
        rows, kept = self.measured(bundle, catalog)
        for protocol, train, held_out in self.sides(bundle, rows, kept):
            tasks = list(self.tasks(protocol, held_out, train))
            if tasks:
                yield Fold(protocol, train, tasks)

    def sides(self, bundle: Bundle, rows: Measurements, kept: Kept = EVERY) -> Sides:
        """(protocol, training rows, held-out rows) of each split in which neither is empty."""
        for protocol, key in self.each_held_out.items():
            values = rows.groups[key]
            for value in np.unique(values[values != ""]):
                out = values == value
                if not out.all():
                    yield protocol, rows.take(~out), rows.take(out)
        if self.each_held_out:
            return
        for split in dataset(self.dataset).checked_splits(bundle):
            protocol = split.protocol.partition("/")[0]
            wanted = not self.split_protocols or protocol in self.split_protocols
            if wanted and self.split_table in ("", split.table):
                for name, train, held_out in split_rows(split, rows, kept):
                    yield name if self.pooled else split.protocol, train, held_out

    def checked_folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """The folds with the values that they hold out, checked for leakage.

        Raises:
            LeakedRows: a training row has a held-out value, in this spelling or another.
        """
        for fold in self.folds(bundle, catalog):
            rows = held_out_rows(fold.tasks) if fold.held_out is None else fold.held_out
            keys = self.held_out_by.get(fold.protocol.partition("/")[0])
            if keys is None:
                keys = [key for key in rows.groups if not _shared(fold.train, rows, key)]
            for key in keys:
                leaked = {*_own_names(rows, key)} & {*_own_names(fold.train, key)} - {""}
                if leaked:
                    name = f"{self.dataset} {fold.protocol}"
                    raise LeakedRows(f"{name}: {key} {min(leaked)} is trained on and held out")
            without = {key: frozenset().union(*names_of(rows, key)) for key in keys}
            source = self.source if fold.source is None else fold.source
            yield replace(fold, source=source, without=without)

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: Seen) -> Tasks:
        """Tasks on a bundle on which nothing is fitted.

        Args:
            bundle: rows, some of which the current predictors may have been trained on.
            catalog: spec sheets of devices.
            seen: values in the training rows of the current predictors; decides what is left out.
        """
        if not self.unseen:
            return
        rows, _ = self.measured(bundle, catalog)
        for protocol, asked in self.unseen.items():
            mask = np.ones(len(rows), dtype=np.bool_)
            for key, new in asked.items():
                mask &= is_seen(rows, key, seen) != new
            if mask.any():
                yield from self.tasks(protocol, rows.take(mask), None)

    def left_out(self, bundle: Bundle, catalog: DeviceCatalog, seen: Seen) -> Mapping[str, int]:
        """Reason -> number of rows that `evaluation_tasks` leaves out for the same arguments."""
        masks = self.reasons(bundle, catalog, seen).items()
        return {reason: int(rows.sum()) for reason, rows in masks if rows.any()}

    def reasons(self, bundle: Bundle, catalog: DeviceCatalog, seen: Seen) -> Mapping[str, Mask]:
        """Reason -> mask of the rows that `evaluation_tasks` leaves out for it."""
        return {}


class TrainingPart(DatasetProtocols):
    """A part of a dataset, as training rows for a predictor of another dataset.

    Args:
        dataset: name of the dataset.
        part: name of the part.
        rows: function that gives its training rows.
    """

    def __init__(self, dataset: str, part: str, rows: Rows) -> None:
        self.dataset, self.part, self.rows = dataset, part, rows

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """The rows of the part."""
        return self.rows(bundle, catalog)


def is_seen(rows: Measurements, key: str, seen: Seen) -> NDArray[np.bool_]:
    """Which of n rows have a value of a grouping key that is in the training set, shape (n,)."""
    return np.isin(rows.groups[key], list(seen.get(key, ())))


def tasks_by(
    rows: Measurements,
    keys: Sequence[str],
    name: str,
    metric: str,
    baselines: Mapping[str, Column] | None = None,
    columns: Mapping[str, Iterable[object]] | None = None,
    **options: Any,
) -> Tasks:
    """One task for each combination of values of grouping keys.

    Args:
        rows: n held-out rows.
        keys: grouping keys, the outermost first; a key `device` also sets the tasks' device.
        name: name of the tasks, a format of the keys such as `unseen_device/{part}`.
        metric: metric to predict and score.
        baselines: name -> predictions, shape (n,).
        columns: key -> n values, for keys that are not groups of the rows.
        options: further attributes of the tasks.
    """
    found = {**rows.groups, **(columns or {})}
    places = rows_by(zip(*(map(str, found[key]) for key in keys), strict=True))
    for values, positions in places.items():
        named = dict(zip(keys, values, strict=True))
        rules = {rule: column[positions] for rule, column in (baselines or {}).items()}
        device = named.get("device")
        yield Task(
            name.format(**named), metric, rows.take(positions), device, baselines=rules, **options
        )


def bundled_part(kind: type[P]) -> P:
    """The first bundled predictor of a class.

    Raises:
        BadArtifact: the installation is damaged, or contains no such predictor.
    """
    for part in predictors_in(bundled().predictor):
        if isinstance(part, kind):
            return part
    raise BadArtifact(f"The bundled predictors hold no {kind.name}; fit them again.")


def median_by(
    train: Measurements, held_out: Measurements, metric: str, *levels: Sequence[str]
) -> Column:
    """Median of the training rows in the same groups, from the first level that has such rows.

    Args:
        train: training rows; rows without the metric are ignored.
        held_out: n rows.
        metric: metric whose median is taken.
        levels: grouping keys that must be equal, the strictest level first; `()` takes all rows.

    Returns:
        Shape (n,); NaN where no level has rows.
    """
    measured = pd.Series(train.values[metric])
    found = np.full(len(held_out), np.nan)
    for level in levels:
        known, asked = (
            [" ".join(labels) for labels in zip(*(rows.groups[key] for key in level), strict=True)]
            if level
            else [""] * len(rows)
            for rows in (train, held_out)
        )
        medians = measured.groupby(known).median()
        found = np.where(np.isnan(found), pd.Series(asked, dtype=str).map(medians), found)
    return found


def design_w(rows: Measurements) -> Column:
    """Design power of each row's device in watts, shape (n,); NaN if its spec sheet gives none."""
    return np.array([query.device.tdp_w for query in rows.queries], dtype=np.float64)


def held_out_rows(tasks: Sequence[Task]) -> Measurements:
    """The held-out rows of all tasks, concatenated."""
    return sum((task.held_out for task in tasks[1:]), tasks[0].held_out)


def _shared(train: Measurements, held_out: Measurements, key: str) -> bool:
    """Whether any value of a key, as spelled, is in both the training and the held-out rows."""
    if key not in train.groups:
        return True
    return bool(np.isin(held_out.groups[key], train.groups[key]).any())


def _own_names(rows: Measurements, key: str) -> NDArray[np.str_]:
    """The `canonical` value of a grouping key for each of n rows; every row has a device."""
    devices = [query.device.name for query in rows.queries]
    return canonical(devices if key == "device" else rows.groups.get(key, [""] * len(rows)))


def names_of(rows: Measurements, key: str) -> list[frozenset[str]]:
    """All `canonical` names that each of n rows may have for a grouping key, in any source.

    Sources use different keys for names of networks, and families of different granularity. So a
    row has the families that any source would assign to it, and a network also has its graph.
    """
    keys = NAMES if key in NAMES else (key,)
    columns = [_own_names(rows, name).tolist() for name in keys]
    if key == "chip":
        devices = pd.Series([query.device.name for query in rows.queries], dtype=str)
        columns.append(canonical(chips(devices)).tolist())
    if key == "family":
        models = _own_names(rows, "model").tolist()
        columns += [[*map(_architecture, models)], [*map(family_of, models)]]
    if key in ("family", *NAMES):
        workloads = [query.workload for query in rows.queries]
        columns.append(
            [
                workload.graph.digest if isinstance(workload, Network) else ""
                for workload in workloads
            ]
        )
    return [frozenset(names) - {""} for names in zip(*columns, strict=True)]


def _architecture(model: str) -> str:
    """The first word of a model's name that does not say where its weights come from."""
    words = re.findall(r"[a-z]+", model)
    return next((word for word in words if word not in WEIGHTS_OF), "")


def split_rows(split: Split, rows: Measurements, kept: Kept) -> Sides:
    """(protocol, training rows, held-out rows) of a split in which neither is empty.

    Args:
        split: a split of a table.
        rows: the rows of the table that are queries.
        kept: their positions in the table.
    """
    train, held_out = split.train[kept], split.held_out[kept]
    if train.any() and held_out.any():
        yield split.protocol.partition("/")[0], rows.take(train), rows.take(held_out)
