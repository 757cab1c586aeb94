"""The catalogue of predictors: their classes, and how each is trained and released.

A class is imported only when an artifact that contains it is loaded, which keeps start-up short.
Other packages add a `CatalogEntry` as an entry point (`forerun.data.plugins`).
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Final

from cattrs import structure

from forerun.data.errors import BadArtifact
from forerun.data.facts import facts_of
from forerun.data.plugins import plugin, plugins_by_name
from forerun.models.predictor import Predictor

GROUP: Final = "forerun.predictors"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A predictor: its class, and the recipe by which a release trains it.

    Attributes:
        location: `module:class`.
        answers: what it predicts, for the model card and the reference; empty for a baseline.
        trained_on: sources of training rows, one tuple for each fitted instance in a release. A
            source is a dataset, or `dataset/part` for a part of its training rows. The first source
            also evaluates the predictor. Empty if no release contains the predictor.
        evaluated_on: further datasets whose protocols evaluate it.
        contains: predictors that are fitted first and become parts of it (`Composed`).
        workloads: kinds of workloads whose answers it may contribute to; empty for all.
        devices: kinds of devices that it may answer; empty for all.
        asked_before: predictor that follows this one in the router's order. If empty, it is asked
            last; built-in predictors follow the order of `PREDICTORS`.
    """

    location: str
    answers: str = ""
    trained_on: tuple[tuple[str, ...], ...] = ()
    evaluated_on: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    asked_before: str = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """The kinds of workloads and devices that queries will be about.

    Predictors that cover none of them need not be loaded.

    Attributes:
        workloads: kinds of workloads.
        devices: kinds of devices; None for all.
    """

    workloads: frozenset[str]
    devices: frozenset[str] | None = None

    def concerns(self, name: str) -> bool:
        """Whether the named predictor may answer; always true for predictors of other packages."""
        entry = PREDICTORS.get(name)
        return entry is None or all(
            not able or asked is None or asked.intersection(able)
            for able, asked in ((entry.workloads, self.workloads), (entry.devices, self.devices))
        )


PREDICTORS: Final[Mapping[str, CatalogEntry]] = {
    name: structure(entry, CatalogEntry) for name, entry in facts_of(__file__).items()
}
"""Name of each predictor in artifacts -> its entry in `catalog.toml`, in the order in which the
router asks them."""


def catalog() -> Mapping[str, CatalogEntry]:
    """`PREDICTORS` plus those of installed packages, in the order in which the router asks them.

    Raises:
        BrokenPlugin: an entry of another package cannot be loaded.
    """
    names = list(PREDICTORS)
    added = {
        name: _entry(declared)
        for name, declared in plugins_by_name(GROUP, (type, CatalogEntry)).items()
        if name not in PREDICTORS
    }
    for name, entry in added.items():
        before = entry.asked_before
        names.insert(names.index(before) if before in names else len(names), name)
    return {name: PREDICTORS.get(name) or added[name] for name in names}


def predictors_evaluated_on(dataset: str) -> tuple[str, ...]:
    """Names of the predictors evaluated on a dataset; those that it trains come first."""
    entries = catalog()
    trained = [n for n, e in entries.items() if dataset in [names[0] for names in e.trained_on]]
    others = [name for name, entry in entries.items() if dataset in entry.evaluated_on]
    return tuple(dict.fromkeys((*trained, *others)))


def training_datasets(name: str) -> tuple[str, ...]:
    """Names of the datasets that train a predictor and its parts."""
    entry = PREDICTORS.get(name) or catalog().get(name, CatalogEntry(""))
    datasets = [source.split("/")[0] for sources in entry.trained_on for source in sources]
    parts = [dataset for part in entry.contains for dataset in training_datasets(part)]
    return tuple(dict.fromkeys((*datasets, *parts)))


def unfitted(name: str, seed: int = 0) -> Predictor:
    """A new predictor of that name; predictors without randomness ignore the seed.

    Raises:
        BadArtifact, BrokenPlugin: as `predictor_class`.
    """
    cls: Any = predictor_class(name)
    made = cls(seed=seed) if "seed" in inspect.signature(cls).parameters else cls()
    assert isinstance(made, Predictor)
    return made


def predictor_class(name: str) -> type[Predictor]:
    """The class of the predictor of that name.

    Raises:
        BadArtifact: neither forerun nor an installed package has a predictor of that name.
        BrokenPlugin: an installed package's predictor cannot be loaded.
    """
    entry = PREDICTORS.get(name)
    if entry is None:
        declared = plugin(GROUP, name, (type, CatalogEntry))
        if declared is None:
            raise BadArtifact(f"this version of forerun knows no predictor {name!r}.")
        entry = _entry(declared)
    cls = resolve_name(entry.location)
    assert isinstance(cls, type)
    return cls


def _entry(declared: type | CatalogEntry) -> CatalogEntry:
    """The entry of another package; a class alone means that the package trains it itself."""
    if isinstance(declared, CatalogEntry):
        return declared
    return CatalogEntry(f"{declared.__module__}:{declared.__qualname__}")
