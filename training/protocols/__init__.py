"""Evaluation protocols by dataset: training rows, held-out rows and published predictions."""

from collections.abc import Mapping
from typing import Final

from forerun.data.datasets.imported import imported_tables
from forerun.data.errors import UnknownDataset
from forerun.data.plugins import classes_below, plugins
from forerun.training.protocols.own_tables import OwnTableProtocols
from forerun.training.protocols.protocol import DatasetProtocols, TrainingPart


def all_protocols() -> tuple[type[DatasetProtocols], ...]:
    """`DATASET_PROTOCOLS`, and protocols from installed packages (`forerun.data.plugins`).

    Raises:
        BrokenPlugin: a class of another package cannot be loaded.
    """
    return (*DATASET_PROTOCOLS, *plugins("forerun.protocols"))


def protocols_of_dataset(dataset: str) -> DatasetProtocols:
    """The protocols of a dataset or of an imported table.

    Raises:
        UnknownDataset: there are no protocols for a dataset of that name.
    """
    known = {cls.dataset: cls for cls in all_protocols()}
    if dataset in known:
        return known[dataset]()
    imported = imported_tables()
    if dataset not in imported:
        raise UnknownDataset(dataset, [*known, *imported])
    return OwnTableProtocols(imported[dataset])


def training_source(name: str) -> DatasetProtocols:
    """The protocols of a source in `CatalogEntry.trained_on`: a dataset or `dataset/part`.

    Raises:
        UnknownDataset: there is no source of that name.
    """
    return TRAINING_PARTS.get(name) or protocols_of_dataset(name)


DATASET_PROTOCOLS: Final[tuple[type[DatasetProtocols], ...]] = tuple(
    protocols
    for protocols in classes_below(__name__, DatasetProtocols, "dataset")
    if not protocols.part
)
"""The protocols of each dataset, declared in the modules below."""
TRAINING_PARTS: Final[Mapping[str, DatasetProtocols]] = {
    f"{cls.dataset}/{part}": TrainingPart(cls.dataset, part, rows)
    for cls in DATASET_PROTOCOLS
    for part, rows in cls.parts.items()
}
"""Source -> part of a dataset that trains a predictor of another dataset."""
