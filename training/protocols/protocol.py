"""A task: which rows may teach, which are judged, and what others published for the same rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.models.predictor import Predictor
from forerun.training.scores.choices import Alternatives

Column = NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """Rows judged together, under one protocol.

    Attributes:
        name: `protocol/part`, such as `unseen_device/bmm`.
        metric: column of `judged.values` that is compared.
        judged: rows to answer for.
        device: the one device judged, or None for several.
        published: other systems' predictions of the same rows, NaN where they give none.
        baselines: what simple rules answer for the same rows, by name; NaN where nothing.
        shots: rows that the protocol itself gives to adapt on.
        pool: rows that shots are drawn from; when None, from `judged`, and not scored.
        always: rows given to adapt on beside those drawn, whenever any are.
        bin_width: of the bins whose right one an answer may hit, in the metric's unit; 0 for none.
        scale: how values are seen where root mean square errors are judged; None: they are not.
        alternatives: rows of `judged` of which the least is to be chosen; None: nothing is.
        suggested: whether the predictor's own `suggest` chooses the shots; else a seed draws.
        offset_by: key of the groups that have a median offset each in the baseline
            `median_offset`, which adapts on the same rows; empty for no such baseline.
        repeats: a key for each row, shared by repeats of one run, where shares such as P are
            judged on their own scale; None: they are not.
    """

    name: str
    metric: str
    judged: Measurements
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


def counted(reasons: Mapping[str, NDArray[np.bool_]]) -> dict[str, int]:
    """Reason -> how many rows are left out for it, of masks over the same rows; none absent."""
    return {reason: int(rows.sum()) for reason, rows in reasons.items() if rows.any()}


@dataclass(frozen=True)
class Fold:
    """Tasks that one training set prepares for.

    Attributes:
        protocol: name of the protocol.
        train: rows that the predictor under test may be fitted on.
        tasks: what is judged afterwards.
    """

    protocol: str
    train: Measurements
    tasks: Sequence[Task]


class DatasetProtocols(ABC):
    """Turns one dataset's bundle into exams; one class a dataset."""

    dataset: ClassVar[str]
    fits_any_folder: ClassVar[bool] = False
    """Whether each exam fits on a folder that is given, although no predictor in use knows it."""

    reads: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Table of measurements -> columns that a folder of one's own rows must have. Documented, and
    checked before anything is answered; one of the tables is enough."""

    optional: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Table -> column that may be missing -> what is taken for it then."""

    joined: ClassVar[Sequence[str]] = ()
    """Tables that say what the workloads are, taken from a whole bundle where they are missing."""

    @abstractmethod
    def predictor(self, seed: int = 0) -> Predictor:
        """The predictor under test, unfitted."""

    @property
    def predictor_name(self) -> str:
        """Name of the predictor under test, also where making one is slow."""
        return self.predictor().name

    def predictors(self, seed: int = 0) -> Sequence[Predictor]:
        """All that take this exam, unfitted; the first is `predictor`."""
        return (self.predictor(seed),)

    @abstractmethod
    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All rows that the predictors in use may learn from."""

    @abstractmethod
    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """The published and our own protocols on a whole bundle: each fits before it is judged."""

    @abstractmethod
    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Tasks on a bundle that nothing is fitted on.

        Args:
            bundle: rows of devices and workloads that the current predictors may never have met.
            catalog: spec sheets.
            seen: grouping key -> values that the current predictors were trained on; rows that
                they have seen are left out.
        """

    def left_out(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Mapping[str, int]:
        """Reason -> rows of the folder that no task judges for it; those without a reason absent.

        Args:
            bundle: as given to `evaluation_tasks`.
            catalog: spec sheets.
            seen: as given to `evaluation_tasks`.
        """
        return {}
