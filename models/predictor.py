"""The protocol of all predictors: frozen objects with `fit`, `adapt` and `predict`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol, Self, runtime_checkable

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.prediction import Predictions


@runtime_checkable
class Predictor(Protocol):
    """The protocol of analytic, boosted, graph-network and composed predictors.

    Predictors are immutable: `fit` and `adapt` return a new one, so that a service can use the old
    one until the new one is ready. `forerun.models.contract` tests the required properties.
    """

    name: ClassVar[str]
    """Stable name in artifacts, leaderboards and answers."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics it answers, as in `forerun.data.metrics.METRICS`."""
        ...

    def answers(self, query: Query) -> bool:
        """Whether the predictor accepts this query: its kind of workload, phase and device."""
        ...

    def fit(self, measurements: Measurements) -> Self:
        """A new predictor trained on these rows only."""
        ...

    def adapt(self, measurements: Measurements) -> Self:
        """A new predictor adapted to these support rows, usually a few rows of a new device."""
        ...

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Predictions in the order of the queries; no row depends on the other queries."""
        ...

    def save(self, folder: Path) -> None:
        """Write text and JSON files, but no pickles, from which `load` restores the predictor."""
        ...

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged or of another version.
        """
        ...


@runtime_checkable
class Suggesting(Protocol):
    """A predictor that suggests which queries to measure next (active learning)."""

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Indices of at most `count` of these queries, the most informative ones first."""
        ...


@runtime_checkable
class Learning(Protocol):
    """A predictor that also learns from measurements that a router answers by another one."""

    def learns(self, query: Query) -> bool:
        """Whether what is measured of a query changes its answers about others."""
        ...


@runtime_checkable
class Composed(Protocol):
    """A predictor with fitted predictors as parts, which `CatalogEntry.contains` names."""

    def with_parts(self, parts: Mapping[str, Predictor]) -> Self:
        """The same predictor with these parts, by name, and without what was fitted on others."""
        ...
