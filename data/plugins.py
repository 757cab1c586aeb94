"""Plugins: what other installed packages declare as entry points.

A package can add a dataset, a reader, a predictor, a protocol or a collector without a change here:

    [project.entry-points."forerun.datasets"]
    my_dataset = "my_package.dataset:MyDataset"

An entry point names a class; for a predictor it names a `CatalogEntry` (`forerun.models.catalog`),
which says how the predictor is trained.

Names that forerun itself uses cannot be taken. The format is defined in the Python packaging guide
(https://packaging.python.org/specifications/entry-points/).
"""

import sys
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pkgutil import walk_packages
from typing import Any, Final

from forerun.data.errors import BrokenPlugin

GROUPS: Final = (
    "forerun.datasets",
    "forerun.readers",
    "forerun.predictors",
    "forerun.protocols",
    "forerun.collectors",
)
"""Groups of entry points."""


def plugins(group: str) -> tuple[type[Any], ...]:
    """Classes that installed packages declare for a group, sorted by name.

    Args:
        group: one of `GROUPS`.

    Raises:
        BrokenPlugin: a class cannot be loaded.
    """
    return tuple(plugins_by_name(group).values())


def plugins_by_name(group: str, kinds: tuple[type, ...] = (type,)) -> dict[str, Any]:
    """Objects that installed packages declare for a group, by name and sorted by name.

    Args:
        group: one of `GROUPS`.
        kinds: types that an entry point may name; by default a class.

    Raises:
        BrokenPlugin: an entry point cannot be loaded or names something else.
    """
    assert group in GROUPS
    return {point.name: _loaded(point, kinds) for point in sorted(_declared(group))}


def plugin(group: str, name: str, kinds: tuple[type, ...] = (type,)) -> Any | None:
    """The object declared under one name of a group; None if there is none.

    Raises:
        BrokenPlugin: it cannot be loaded, or is not one of `kinds`.
    """
    assert group in GROUPS
    return next((_loaded(point, kinds) for point in _declared(group).select(name=name)), None)


def _declared(group: str) -> EntryPoints:
    return _on_paths(group, tuple(sys.path))


@cache
def _on_paths(group: str, paths: tuple[str, ...]) -> EntryPoints:
    """Entry points of packages on these paths; reading the metadata takes tens of milliseconds."""
    return entry_points(group=group)


def _loaded(point: EntryPoint, kinds: tuple[type, ...]) -> Any:
    try:
        loaded = point.load()
    except (ImportError, AttributeError) as error:
        raise BrokenPlugin(point.group, point.name, point.value, str(error)) from error
    if not isinstance(loaded, kinds):
        expected = " and no ".join("class" if kind is type else kind.__name__ for kind in kinds)
        raise BrokenPlugin(point.group, point.name, point.value, f"it is no {expected}")
    return loaded


def classes_below(package: str, kind: type[Any], attribute: str) -> tuple[type[Any], ...]:
    """Classes of the modules below a package that define an attribute themselves, sorted by name.

    Modules whose names begin with `pack` are scripts and are not imported.

    Args:
        package: name of the package.
        kind: base class.
        attribute: attribute that each such class defines, and shared base classes do not.
    """
    names = (found.name for found in walk_packages(import_module(package).__path__, f"{package}."))
    modules = [
        import_module(name) for name in names if name.rpartition(".")[2].partition("_")[0] != "pack"
    ]
    found = {
        value.__name__: value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, kind)
        and value.__module__ == module.__name__
        if attribute in vars(value)
    }
    return tuple(found[name] for name in sorted(found))
