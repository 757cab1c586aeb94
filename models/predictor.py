"""What every predictor is: frozen, fitted on measurements, asked with queries."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol, Self, runtime_checkable

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.prediction import Predictions


@runtime_checkable
class Predictor(Protocol):
    """One protocol for analytic, boosted, graph-network and composed predictors.

    A predictor never changes: `fit` and `adapt` return a new one, so that a service can hold the
    old while it warms the new. What every one promises is written in `forerun.models.contract`.
    """

    name: ClassVar[str]
    """Stable name in artifacts, leaderboards and answers."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics it answers, as in `forerun.data.metrics.METRICS`."""
        ...

    def answers(self, query: Query) -> bool:
        """True when it takes this query: its kind, phase and device."""
        ...

    def fit(self, measurements: Measurements) -> Self:
        """A new predictor, trained on these rows alone."""
        ...

    def adapt(self, measurements: Measurements) -> Self:
        """A new predictor that also takes these few rows of new hardware into account."""
        ...

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Answers in the order of the queries; a row does not depend on its neighbours."""
        ...

    def save(self, folder: Path) -> None:
        """Write text and JSON files into `folder`; `load` gives the same answers. No pickles."""
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
    """A predictor that knows which measurements would teach it most."""

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of `count` of these queries, the most useful first."""
        ...
