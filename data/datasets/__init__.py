"""Datasets that can be pulled, one file each."""

from typing import Final

from forerun.data.bundle import Bundle
from forerun.data.datasets.dataset import Dataset
from forerun.data.datasets.imported import imported_tables
from forerun.data.errors import UnknownDataset
from forerun.data.plugins import classes_below, plugins

DATASETS: Final[tuple[type[Dataset], ...]] = classes_below(__name__, Dataset, "name")
"""The datasets that are declared in the modules below."""


def all_datasets() -> tuple[type[Dataset], ...]:
    """`DATASETS`, and datasets from installed packages (`forerun.data.plugins`).

    Raises:
        BrokenPlugin: a class of another package cannot be loaded.
    """
    return (*DATASETS, *plugins("forerun.datasets"))


def known_datasets() -> tuple[Dataset, ...]:
    """All datasets, with the imported tables last.

    Raises:
        BrokenPlugin: a class of another package cannot be loaded.
    """
    return (*(cls() for cls in all_datasets()), *imported_tables().values())


def dataset(name: str) -> Dataset:
    """The dataset or imported table of that name.

    Raises:
        UnknownDataset: there is none.
    """
    known = {cls.name: cls for cls in all_datasets()}
    if name in known:
        return known[name]()
    imported = imported_tables()
    if name not in imported:
        raise UnknownDataset(name, [*known, *imported])
    return imported[name]


def pull(name: str) -> Bundle:
    """Download and tidy a dataset into the user's folder of bundles.

    Raises:
        UnknownDataset: there is none of that name.
        MissingData, DamagedData, BadTable: as in `Dataset.pull`.
    """
    return dataset(name).pull()
