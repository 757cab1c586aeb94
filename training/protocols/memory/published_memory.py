"""published_memory: peaks of published set-ups, no range of which they calibrated.

The bundled ranges were calibrated on these very rows (`CalibratedMemory`), so that the bundled
predictor as it ships is never judged by them: its estimates are, which no row trained, and its ways
of calibration, with the source or the family of what is judged left out.
"""

from collections.abc import Iterator, Mapping, Sequence
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
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task

BIN_MIB: Final = 8000.0
"""Width of the bins of memory that an answer should hit, as of `gpumemnet`."""


class PublishedMemoryProtocols(DatasetProtocols):
    """Memory as measured: allocated, reserved or of the device, by source and kind of set-up."""

    dataset = "published_memory"
    predictor_name = CalibratedMemory.name
    fits_any_folder = True

    def predictor(self, seed: int = 0) -> Predictor:
        """The bundled `Memory`, which no row of this dataset trained; only ranges are fitted."""
        return CalibratedMemory(bundled_memory())

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All rows that take part and have a graph."""
        return memory_measurements(bundle.table("table"), graphs_of(bundle), catalog)[0]

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """`published`: ranges of `Memory`, without any of these rows; then those of a bundle that
        was calibrated without the family, or the source, of what is judged.
        """
        table = bundle.table("table")
        measured, kept = memory_measurements(table, graphs_of(bundle), catalog)
        nothing = measured.take(np.array([], dtype=np.intp))
        yield Fold("published", nothing, list(_tasks(measured, "published")))
        place = np.full(len(table), -1)
        place[kept] = np.arange(len(kept))
        for split in PublishedMemory().splits(bundle):
            protocol = split.protocol.partition("/")[0]
            train = place[split.train & (place >= 0)]
            judged = place[split.judged & (place >= 0)]
            if len(train) and len(judged):
                tasks = list(_tasks(measured.take(judged), protocol))
                yield Fold(protocol, measured.take(train), tasks)

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Rows that no predictor in use was trained on, by what is new in them."""
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
        """Rows that are no exact measurement, or whose set-up cannot be asked."""
        return left_out(bundle.table("table"), graphs_of(bundle))


def graphs_of(bundle: Bundle) -> dict[str, OperatorGraph]:
    """The graphs of a bundle; those that come with the package where it has none."""
    if bundle.has("graphs"):
        return read_graphs(bundle.table("graphs"))
    dataset = PublishedMemory()
    return read_graphs(dataset.tidy(dataset.packaged())["graphs"])


def bundled_memory() -> Memory:
    """The bundled predictor of memory.

    Raises:
        BadArtifact: the installation is damaged, or bundles no such predictor.
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
    """One task a part, phase and metric."""
    for metric in METRICS:
        for part in np.unique(rows.groups["part"]):
            for phase in ("training", "inference"):
                same = (rows.groups["part"] == part) & (rows.groups["phase"] == phase)
                same &= rows.groups["metric"] == metric
                if same.any():
                    name = f"{protocol}/{part}_{phase}"
                    yield Task(name, metric, rows.take(same), bin_width=BIN_MIB)
