"""Tables that say what a workload is, such as operator graphs, joined by name from a whole bundle.

Measurements of one's own rarely come with graphs; the pulled bundle has them by model.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.data.bundle import Bundle, bundle_folder
from forerun.data.errors import MissingData

if TYPE_CHECKING:
    import pandas as pd

REFERENCE = "FORERUN_REFERENCE"
"""Environment variable: a folder of bundles by dataset, where the pulled one has no such table."""


def joined_table(bundle: Bundle, name: str, dataset: str, remedy: str = "") -> "pd.DataFrame":
    """A table of the bundle, else of the pulled or the reference bundle of that dataset.

    Args:
        bundle: rows to evaluate.
        name: table that describes their workloads.
        dataset: whose bundle holds it.
        remedy: how else it is had, a sentence.

    Raises:
        MissingData: none of the folders has it; the message names them.
    """
    if bundle.has(name):
        return bundle.table(name)
    for folder in _folders(dataset):
        if folder.is_dir() and Bundle(dataset, folder).has(name):
            return Bundle(dataset, folder).table(name)
    looked = ", ".join(map(str, _folders(dataset)))
    raise MissingData(
        f"{bundle.folder} has no table {name!r}, nor has {looked}. `forerun data pull {dataset}` "
        f"brings one. {remedy}".strip()
    )


def companion(bundle: Bundle, dataset: str) -> Bundle | None:
    """The bundle of another dataset: next to this one's folder, pulled, or of reference.

    Args:
        bundle: rows to evaluate.
        dataset: whose bundle is sought.

    Returns:
        None where there is none.
    """
    for folder in (bundle.folder.resolve().parent / dataset, *_folders(dataset)):
        if folder.is_dir() and Bundle(dataset, folder).tables():
            return Bundle(dataset, folder)
    return None


def _folders(dataset: str) -> Iterator[Path]:
    yield bundle_folder(dataset)
    given = os.environ.get(REFERENCE)
    if given:
        yield Path(given).expanduser() / dataset
