"""The protocol of all predictors: frozen objects with `fit`, `adapt` and `predict`.

It follows the conventions of scikit-learn's estimators: settings are read by name, and `clone`
returns an unfitted copy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, Self, runtime_checkable

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.prediction import Predictions

SETTING: Final[Mapping[str, bool]] = {"setting": True}
"""Metadata of fields chosen by the user; all other fields are results of `fit` and `adapt`."""


class Estimator:
    """A frozen dataclass whose settings are the fields declared with `metadata=SETTING`.

        @dataclass(frozen=True)
        class Mine(Estimator):
            trees: int = field(default=100, metadata=SETTING)
            boosters: Mapping[str, Booster] = field(default_factory=dict)

    `sklearn.base.clone` makes an unfitted predictor with equal settings, so that hyperparameter
    search and cross-validation work as for scikit-learn's estimators. A setting may itself be an
    estimator, or a tuple of estimators.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Name -> value of each setting.

        Args:
            deep: adds the settings of settings that are estimators, as `SETTING__NAME`.
        """
        params = {f.name: getattr(self, f.name) for f in fields(self) if "setting" in f.metadata}
        if deep:
            parts = {name: part for name, part in params.items() if isinstance(part, Estimator)}
            for name, part in parts.items():
                params |= {
                    f"{name}__{setting}": value for setting, value in part.get_params().items()
                }
        return params

    def with_params(self, **changes: Any) -> Self:
        """An unfitted predictor with these settings; the other settings keep their values.

        Estimators among the settings become unfitted too, unless given here.

        Args:
            changes: settings by the names of `get_params`, including `SETTING__NAME`.

        Raises:
            ValueError: there is no such setting.
        """
        params = {name: _unfitted(value) for name, value in self.get_params(deep=False).items()}
        for key in sorted(changes, key=lambda key: key.count("__")):
            name, _, inner = key.partition("__")
            part = params.get(name)
            if name not in params or (inner and not isinstance(part, Estimator)):
                raise ValueError(
                    f"{type(self).__name__} has no setting {key!r}; it has "
                    f"{', '.join(self.get_params()) or 'none'}."
                )
            value = changes[key]
            params[name] = part.with_params(**{inner: value}) if inner and part else value
        return type(self)(**params)

    def __sklearn_clone__(self) -> Self:
        return self.with_params()


def _unfitted(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_unfitted, value))
    return value.with_params() if isinstance(value, Estimator) else value


@runtime_checkable
class Predictor(Protocol):
    """The protocol of analytical, boosted, graph-network and composed predictors.

    Predictors are immutable: `fit` and `adapt` return a new one, so that a service can keep using
    the old one until the new one is ready. `forerun.models.contract` tests the required properties.
    """

    name: ClassVar[str]
    """Stable name in artifacts, leaderboards and answers."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics it answers, as in `forerun.data.metrics.METRICS`."""
        ...

    def answers(self, query: Query) -> bool:
        """Whether the predictor accepts this query's kind of workload, phase and device."""
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
    """A predictor that also learns from measurements of queries that another predictor answers."""

    def learns(self, query: Query) -> bool:
        """Whether measuring this query changes the predictor's answers to others."""
        ...


@runtime_checkable
class Composed(Protocol):
    """A predictor with fitted predictors as parts, which `CatalogEntry.contains` lists."""

    def with_parts(self, parts: Mapping[str, Predictor]) -> Self:
        """The predictor with these parts, by name, and without anything fitted on others."""
        ...
