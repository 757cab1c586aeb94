"""Join tables that describe workloads, such as operator graphs, from another bundle.

Users' measurements rarely come with graphs; the pulled bundle has them by model name.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from forerun.data.bundle import Bundle, bundle_folder
from forerun.data.errors import MissingData
from forerun.data.lazy import pd

REFERENCE = "FORERUN_REFERENCE"
"""Environment variable: folder of bundles by dataset, searched after the pulled one."""


def joined_table(bundle: Bundle, name: str, dataset: str, remedy: str = "") -> "pd.DataFrame":
    """A table of the bundle, or else of the pulled or the reference bundle of another dataset.

    Args:
        bundle: rows to evaluate.
        name: name of the table, which describes their workloads.
        dataset: dataset whose bundle has the table.
        remedy: sentence on how else to obtain the table, for the error message.

    Raises:
        MissingData: none of the folders holds the table; the message names them.
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
    """The bundle of another dataset: from a sibling folder, pulled, or the reference bundle.

    Args:
        bundle: rows to evaluate.
        dataset: the other dataset.

    Returns:
        The bundle, or None if there is none.
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
