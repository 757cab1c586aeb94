"""The recipes of a release: each predictor with the sources of its training rows."""

from collections.abc import Mapping
from dataclasses import dataclass

from forerun.models.catalog import catalog, unfitted
from forerun.models.own_tables import TableBoost
from forerun.models.predictor import Predictor
from forerun.training.protocols import training_source
from forerun.training.protocols.protocol import DatasetProtocols


@dataclass(frozen=True, slots=True)
class Recipe:
    """One predictor and the sources of its training rows.

    Attributes:
        predictor: its name in the catalogue.
        sources: names of its training rows (`CatalogEntry.trained_on`); the dataset of the first
            one evaluates it.
    """

    predictor: str
    sources: tuple[str, ...]

    @property
    def all_protocols(self) -> tuple[DatasetProtocols, ...]:
        """The protocols that give the training rows, in the order of `sources`.

        Raises:
            UnknownDataset: a source has no protocols.
        """
        return tuple(training_source(source) for source in self.sources)

    @property
    def table(self) -> str:
        """The imported table that the predictor is trained on; empty for a dataset."""
        return self.sources[0] if self.predictor == TableBoost.name else ""

    def unfitted(self, seed: int = 0) -> Predictor:
        """The predictor with release settings; that of a table only answers for its devices."""
        if self.table:
            return TableBoost(table=self.table, own_devices=True, seed=seed)
        return unfitted(self.predictor, seed)

    @property
    def evaluated_on(self) -> str:
        """The dataset whose protocols evaluate the predictor."""
        return self.all_protocols[0].dataset


def recipes() -> tuple[Recipe, ...]:
    """The recipes of the catalogue, in the order in which the router asks the predictors.

    A predictor that contains others comes after them.

    Raises:
        BrokenPlugin: an entry of another package cannot be loaded.
    """
    return tuple(
        Recipe(name, sources) for name, entry in catalog().items() for sources in entry.trained_on
    )


def composed_predictors() -> Mapping[str, tuple[str, ...]]:
    """Predictor -> names of the predictors that it contains."""
    return {name: entry.contains for name, entry in catalog().items() if entry.contains}
