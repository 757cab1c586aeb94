"""Plugins: classes that other installed packages declare as entry points.

A package adds a dataset, a reader, a predictor, a protocol or a collector without a change here:

    [project.entry-points."forerun.datasets"]
    my_dataset = "my_package.dataset:MyDataset"

Names that forerun itself uses cannot be taken. The format is that of the Python packaging guide
(https://packaging.python.org/specifications/entry-points/).
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from forerun.data.errors import BrokenPlugin

GROUPS: Final = (
    "forerun.datasets",
    "forerun.readers",
    "forerun.predictors",
    "forerun.protocols",
    "forerun.collectors",
)
"""Groups of entry points, by kind of class."""


def plugins(group: str) -> tuple[type[Any], ...]:
    """Classes that installed packages declare for a group, in the order of their names.

    Args:
        group: one of `GROUPS`.

    Raises:
        BrokenPlugin: a class cannot be loaded.
    """
    assert group in GROUPS
    return tuple(_loaded(point) for point in sorted(entry_points(group=group)))


def plugin(group: str, name: str) -> type[Any] | None:
    """The class that is declared under one name of a group; None where there is none.

    Raises:
        BrokenPlugin: the class cannot be loaded.
    """
    assert group in GROUPS
    return next((_loaded(point) for point in entry_points(group=group, name=name)), None)


def _loaded(point: EntryPoint) -> type[Any]:
    try:
        loaded = point.load()
    except (ImportError, AttributeError) as error:
        raise BrokenPlugin(point.group, point.name, point.value, str(error)) from error
    if not isinstance(loaded, type):
        raise BrokenPlugin(point.group, point.name, point.value, "it is no class")
    return loaded
