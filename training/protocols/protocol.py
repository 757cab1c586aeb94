"""Evaluation protocols: the training rows of each fold and the tasks evaluated after fitting.

A `DatasetProtocols` turns the bundle of one dataset into `Fold`s. A fold has one training set and
several `Task`s; a task is a set of held-out rows that are scored together, with the baselines and
the published predictions for the same rows.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.published_networks import chips
from forerun.data.datasets.networks.timm_bench import family
from forerun.data.device import DeviceCatalog
from forerun.data.errors import InputError
from forerun.data.measurements import Measurements
from forerun.data.split import LeakedRows, Split, canonical
from forerun.data.workload import Network
from forerun.models.catalog import predictors_evaluated_on, unfitted
from forerun.models.predictor import Predictor
from forerun.training.scores.choices import Alternatives

Column = NDArray[np.float64]
NAMES: Final = ("model", "op_shape")
"""Grouping keys whose values are names of networks or of operators with their shapes."""
WEIGHTS_OF: Final = frozenset({"tf", "gluon", "legacy", "adv", "ssl", "swsl"})
"""Words before the architecture in names of networks: which project or method trained them."""


@dataclass(frozen=True)
class Task:
    """Held-out rows that are scored together under one protocol.

    Attributes:
        name: `protocol/part`, such as `unseen_device/bmm`.
        metric: column of `held_out.values` that is predicted and scored.
        held_out: the n held-out rows.
        device: the only device among them, or None for several.
        published: system -> its published predictions of these rows, shape (n,), in the metric's
            unit; NaN where it gives none.
        baselines: name -> predictions of a simple rule for these rows, shape (n,); NaN for none.
        shots: size of the support set that the protocol itself adapts on (few-shot adaptation).
        pool: rows that the support set is drawn from; when None it is drawn from `held_out`, and
            the rows drawn are not scored.
        always: rows that are added to every support set that is not empty.
        bin_width: width of the bins that classification accuracy is computed on, in the metric's
            unit; 0 for no such score.
        scale: transformation of values before root mean square errors are computed; None for no
            such score.
        alternatives: groups of rows of `held_out` from each of which the least is to be chosen;
            None for no such score.
        suggested: whether the predictor's own `suggest` chooses the support set; otherwise it is
            drawn at random by seed.
        offset_by: grouping key of the baseline `median_offset`, which adapts on the same support
            set with one median offset for each group; empty for no such baseline.
        repeats: shape (n,), a key that repeated runs of one configuration share, for metrics such
            as relative speed that are scored by absolute error; None for relative errors.
        device_only: whether the runs do not wait for the host, so that the part `host` of the
            breakdown is taken off the predicted latency. There are no intervals then.
    """

    name: str
    metric: str
    held_out: Measurements
    device: str | None = None
    published: Mapping[str, Column] = field(default_factory=dict)
    baselines: Mapping[str, Column] = field(default_factory=dict)
    shots: int = 0
    pool: Measurements | None = None
    always: Measurements | None = None
    suggested: bool = False
    offset_by: str = ""
    repeats: NDArray[np.str_] | None = None
    bin_width: float = 0.0
    scale: Callable[[Column], Column] | None = None
    alternatives: Alternatives | None = None
    device_only: bool = False


def counted(reasons: Mapping[str, NDArray[np.bool_]]) -> dict[str, int]:
    """Reason -> number of rows left out for it; reasons without a row are absent.

    Args:
        reasons: reason -> mask over the same rows.
    """
    return {reason: int(rows.sum()) for reason, rows in reasons.items() if rows.any()}


@dataclass(frozen=True)
class Fold:
    """One training set, and the tasks that are evaluated after fitting on it.

    Attributes:
        protocol: name of the protocol.
        train: training set of the predictor under test.
        tasks: held-out rows, by task.
        held_out: the held-out rows of the dataset, where tasks have others as well; None where
            they have none.
        source: source of the rows of `train` (`DatasetProtocols.source`); None for that of the
            protocols, empty where `train` has rows of several.
        without: grouping key -> values that are held out, in the spelling of `canonical`. A refit
            of a release leaves out the rows of all sources that have one of them.
    """

    protocol: str
    train: Measurements
    tasks: Sequence[Task]
    held_out: Measurements | None = None
    source: str | None = None
    without: Mapping[str, frozenset[str]] = field(default_factory=dict)


class DatasetProtocols(ABC):
    """The evaluation protocols of one dataset: training rows, folds and tasks of its bundle."""

    dataset: str
    fits_any_folder: ClassVar[bool] = False
    """Whether folds are fitted on any given folder, also one that no bundled predictor knows."""

    zero_shot: ClassVar[bool] = False
    """Whether the current predictors are scored on the whole dataset unless a protocol is named."""

    fitted_protocols: ClassVar[Sequence[str]] = ()
    """Protocols of a `zero_shot` dataset for which predictors are fitted fold by fold."""

    reads: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Table of measurements -> columns that a folder of your own rows must have. One of the tables
    is enough. They are documented, and checked before anything is predicted."""

    optional: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Table -> optional column -> description of the default that replaces it."""

    joined: ClassVar[Sequence[str]] = ()
    """Tables that describe workloads, taken from the pulled bundle where a folder lacks them."""

    held_out_by: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Protocol -> grouping keys by whose values it holds rows out, as in `Fold.without`. For other
    protocols they are all keys of which training rows and held-out rows share no value."""

    part: ClassVar[str] = ""
    """Name of the part of the dataset that `training_rows` gives; empty for all of it."""

    @property
    def source(self) -> str:
        """`dataset`, or `dataset/part`: the name under which a recipe asks for these rows."""
        return f"{self.dataset}/{self.part}" if self.part else self.dataset

    @property
    def predictor_names(self) -> tuple[str, ...]:
        """Names of the predictors that these protocols evaluate, from the catalogue.

        Raises:
            InputError: the catalogue has no predictor for the dataset.
        """
        names = predictors_evaluated_on(self.dataset)
        if not names:
            raise InputError(f"No predictor is trained or evaluated on {self.dataset}.")
        return names

    def predictor(self, seed: int = 0) -> Predictor:
        """The predictor under test, unfitted; parts of a composed one may be fitted."""
        return unfitted(self.predictor_names[0], seed)

    def predictors(self, seed: int = 0) -> Sequence[Predictor]:
        """All predictors that these protocols evaluate, unfitted; the first is `predictor`."""
        others = predictors_evaluated_on(self.dataset)[1:]
        return (self.predictor(seed), *(unfitted(name, seed) for name in others))

    @abstractmethod
    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All rows that the released predictors may be fitted on."""

    @abstractmethod
    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """Folds of the published protocols and of our own, on a whole bundle."""

    def checked_folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """The folds with what they hold out, after a check that no training row has any of it.

        Raises:
            LeakedRows: a training row has a held-out value, in this spelling or another.
        """
        for fold in self.folds(bundle, catalog):
            rows = held_out_rows(fold.tasks)
            if fold.held_out is not None:
                rows = fold.held_out
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

    @abstractmethod
    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Tasks on a bundle that nothing is fitted on.

        Args:
            bundle: rows, some of which the current predictors may have been trained on.
            catalog: spec sheets of devices.
            seen: grouping key -> values among the training rows of the current predictors, which
                decide what is left out.
        """

    def left_out(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Mapping[str, int]:
        """Reason -> number of rows of the folder that no task evaluates for that reason.

        Args:
            bundle: as given to `evaluation_tasks`.
            catalog: spec sheets.
            seen: as given to `evaluation_tasks`.
        """
        return {}


def held_out_rows(tasks: Sequence[Task]) -> Measurements:
    """The rows of all tasks, once for each task."""
    return sum((task.held_out for task in tasks[1:]), tasks[0].held_out)


def _shared(train: Measurements, held_out: Measurements, key: str) -> bool:
    """Whether a value of a key is both trained on and held out, as it is spelled."""
    if key not in train.groups:
        return True
    return bool(np.isin(held_out.groups[key], train.groups[key]).any())


def _own_names(rows: Measurements, key: str) -> NDArray[np.str_]:
    """The value of each of n rows of a grouping key, as `canonical`; every row has a device."""
    devices = [query.device.name for query in rows.queries]
    return canonical(devices if key == "device" else rows.groups.get(key, [""] * len(rows)))


def names_of(rows: Measurements, key: str) -> list[frozenset[str]]:
    """All that each of n rows may be called by a grouping key in any source, as `canonical`.

    Sources have different keys for names of networks, and families of different sizes. So a row
    has the families that any of them would put it into, and a network also has its graph.
    """
    found = [{name} for name in _own_names(rows, key).tolist()]
    for other in NAMES if key in NAMES else ():
        for names, name in zip(found, _own_names(rows, other).tolist(), strict=True):
            names.add(name)
    if key == "chip":
        devices = pd.Series([query.device.name for query in rows.queries], dtype=str)
        for names, name in zip(found, canonical(chips(devices)).tolist(), strict=True):
            names.add(name)
    if key == "family":
        for names, model in zip(found, _own_names(rows, "model").tolist(), strict=True):
            names |= {name for name in model and (_architecture(model), family(model)) if name}
    if key in ("family", *NAMES):
        for names, query in zip(found, rows.queries, strict=True):
            if isinstance(query.workload, Network):
                names.add(query.workload.graph.digest)
    return [frozenset(names - {""}) for names in found]


def _architecture(model: str) -> str:
    """The first word of a model's name, without those for where its weights come from."""
    words = re.findall(r"[a-z]+", model)
    return next((word for word in words if word not in WEIGHTS_OF), "")


def split_rows(
    splits: Iterable[Split], measured: Measurements, kept: NDArray[np.intp]
) -> Iterator[tuple[str, Measurements, Measurements]]:
    """(protocol, training rows, held-out rows) of each split in which neither is empty.

    Args:
        splits: of a table.
        measured: the n rows of the table that are queries.
        kept: their positions in the table, shape (n,).
    """
    for split in splits:
        train, held_out = np.flatnonzero(split.train[kept]), np.flatnonzero(split.held_out[kept])
        if len(train) and len(held_out):
            protocol = split.protocol.partition("/")[0]
            yield protocol, measured.take(train), measured.take(held_out)
