"""published_memory: peak memory of published set-ups, with intervals calibrated on other rows.

The prediction intervals of the bundled `CalibratedMemory` were calibrated on these rows, so that
evaluating it as shipped would be optimistic. The protocols evaluate its estimates, which were not
fitted on these rows, and intervals calibrated without the source or the family of the held-out
rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.memory.published_memory import PublishedMemory
from forerun.data.device import DeviceCatalog
from forerun.data.errors import BadArtifact
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.features.published.zoo import read_graphs
from forerun.models.artifact.loading import bundled
from forerun.models.memory.calibrated import CalibratedMemory
from forerun.models.memory.peak_memory import Memory
from forerun.models.predictor import Predictor
from forerun.models.router import Router
from forerun.training.protocols.memory.memory_rows import METRICS, left_out, memory_measurements
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task, split_rows

BIN_MIB: Final = 8000.0
"""Width of the bins of the score `bin_accuracy`, as in `gpumemnet`."""


class PublishedMemoryProtocols(DatasetProtocols):
    """Allocated, reserved or device memory, as measured, by source and kind of set-up."""

    dataset = "published_memory"
    held_out_by = MappingProxyType(
        {"published": (), "unseen_model": ("family",), "unseen_source": ("source",)}
    )
    fits_any_folder = True

    def predictor(self, seed: int = 0) -> Predictor:
        """`CalibratedMemory` on the bundled `Memory`; only the intervals are fitted."""
        return CalibratedMemory(bundled_memory())

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All usable rows with an operator graph."""
        return memory_measurements(bundle.table("table"), graphs_of(bundle), catalog)[0]

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """`published` without calibration on these rows, then families and sources held out."""
        table = bundle.table("table")
        measured, kept = memory_measurements(table, graphs_of(bundle), catalog)
        nothing = measured.take(np.array([], dtype=np.intp))
        yield Fold("published", nothing, list(_tasks(measured, "published")))
        for protocol, train, held_out in split_rows(
            PublishedMemory().checked_splits(bundle), measured, kept
        ):
            yield Fold(protocol, train, list(_tasks(held_out, protocol)))

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Rows by what the intervals were not calibrated on: the family, the source, or both."""
        measured, _ = memory_measurements(bundle.table("table"), graphs_of(bundle), catalog)
        new = {
            key: ~np.isin(measured.groups[key], list(seen.get(key, ())))
            for key in ("family", "source")
        }
        parts = {
            "unseen_model": new["family"] & ~new["source"],
            "unseen_model_and_source": new["family"] & new["source"],
            "unseen_source": ~new["family"] & new["source"],
        }
        for protocol, rows in parts.items():
            if rows.any():
                yield from _tasks(measured.take(rows), protocol)

    def left_out(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Mapping[str, int]:
        """Rows that are no exact measurement, or whose set-up no query can express."""
        return left_out(bundle.table("table"), graphs_of(bundle))


def graphs_of(bundle: Bundle) -> dict[str, OperatorGraph]:
    """Operator graphs of a bundle, by name; those of the package where the bundle has none."""
    return read_graphs(PublishedMemory().table_of(bundle, "graphs"))


def bundled_memory() -> Memory:
    """The bundled `Memory`.

    Raises:
        BadArtifact: the installation is damaged, or contains no such predictor.
    """
    predictor = bundled().predictor
    parts = predictor.parts if isinstance(predictor, Router) else (predictor,)
    for part in parts:
        if isinstance(part, Memory):
            return part
        if isinstance(part, CalibratedMemory):
            return part.base
    raise BadArtifact("The bundled predictors hold no memory; fit them again.")


def _tasks(rows: Measurements, protocol: str) -> Iterator[Task]:
    """One task for each part, phase and metric."""
    for metric in METRICS:
        for part in np.unique(rows.groups["part"]):
            for phase in ("training", "inference"):
                same = (rows.groups["part"] == part) & (rows.groups["phase"] == phase)
                same &= rows.groups["metric"] == metric
                if same.any():
                    name = f"{protocol}/{part}_{phase}"
                    yield Task(name, metric, rows.take(same), bin_width=BIN_MIB)
