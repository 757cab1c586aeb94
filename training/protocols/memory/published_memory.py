"""published_memory: peak memory of published set-ups, with intervals calibrated on other rows.

The prediction intervals of the bundled `CalibratedMemory` were calibrated on these rows, so that
evaluating it as shipped would be optimistic. The protocols evaluate its estimates, which were not
fitted on these rows, and intervals calibrated without the source or the family of the held-out
rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.datasets.memory.published_memory import (
    ALLOCATED,
    DEVICE,
    RESERVED,
    PublishedMemory,
    families,
    metrics,
    peak_mib,
    phases,
    reasons,
    sources,
)
from forerun.data.device import Device, DeviceCatalog
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network, Phase
from forerun.features.operators.roofline import ELEMENT_BYTES
from forerun.features.published.zoo import read_graphs
from forerun.models.memory.calibrated import CalibratedMemory
from forerun.models.memory.peak_memory import Memory
from forerun.models.predictor import Predictor
from forerun.training.protocols.memory.memory_setups import NO_GRAPH, Described, described
from forerun.training.protocols.protocol import (
    KNOWN,
    NEW,
    DatasetProtocols,
    Fold,
    Kept,
    Seen,
    Tasks,
    Trained,
    bundled_part,
    tasks_by,
)

METRICS: Final = (ALLOCATED, RESERVED, DEVICE)

BOARDS: Final[Mapping[str, str]] = {
    "rtx2060": "rtx-2060-super",
    "rtx3080ti-laptop-16gb": "rtx-3080-ti-laptop",
    "rtx4070tisuper": "rtx-4080",
    "h100-sxm-96gb-500w": "h100-nvl-94gb",
    "a100-80gb?": "a100-sxm-80gb",
    "a100": "a100-sxm-40gb",
}
"""Name of a GPU in a table -> board. GPUs without a spec sheet are represented by one of the same
generation and memory size, the only property that matters here."""
UNNAMED: Final = "v100-sxm2-16gb"
"""Board of rows that name none: all are from the single-GPU guide, which prints its nvidia-smi."""


def memory_measurements(
    table: pd.DataFrame, graphs: Mapping[str, OperatorGraph], catalog: DeviceCatalog
) -> tuple[Measurements, NDArray[np.intp]]:
    """Rows of `table` as measured networks.

    Args:
        table: table `table` of the bundle.
        graphs: name -> operator graph at batch size 1.
        catalog: spec sheets of devices.

    Returns:
        m rows, and their indices in `table`, shape (m,). Values are peaks in MiB under the metric
        that was measured, and NaN under the two others. Rows with the same group
        `part` are scored together.
    """
    found = questions(table, graphs)
    kept = [row for row, one in enumerate(found) if isinstance(one, Described)]
    asked = [one for one in found if isinstance(one, Described)]
    rows = table.iloc[kept]
    queries = [
        _query(one, graphs[one.graph], _device(row, catalog))
        for one, row in zip(asked, rows.to_dict("records"), strict=True)
    ]
    measured, metric = peak_mib(rows), metrics(rows)
    values = {name: np.where(metric == name, measured, np.nan) for name in METRICS}
    groups = {
        "model": rows["model"],
        "family": families(rows["model"]),
        "graph": [one.graph for one in asked],
        "source": sources(rows),
        "phase": phases(rows),
        "part": [one.part for one in asked],
        "metric": metric,
        "row": rows["row_id"],
    }
    return Measurements.of(queries, values, groups), np.array(kept, dtype=np.intp)


def questions(table: pd.DataFrame, graphs: Mapping[str, OperatorGraph]) -> list["Described | str"]:
    """The set-up of each of n rows, or the reason why it is left out."""
    found: list[Described | str] = []
    columns = (reasons(table), sources(table), table.to_dict("records"))
    for why, source, row in zip(*columns, strict=True):
        one = str(why) or described(str(source), row)
        if isinstance(one, Described) and one.graph not in graphs:
            one = NO_GRAPH
        found.append(one)
    return found


def left_out(table: pd.DataFrame, graphs: Mapping[str, OperatorGraph]) -> dict[str, int]:
    """Reason -> number of rows that are left out for it."""
    why = [one for one in questions(table, graphs) if isinstance(one, str)]
    return {reason: why.count(reason) for reason in dict.fromkeys(why)}


def _query(one: Described, graph: OperatorGraph, device: Device) -> Query:
    phase: Phase = "inference" if one.training is None else "training"
    if one.stored_bytes and graph.parameter_elements is not None:
        # The memory plan keeps weights that no operator reads in their stored precision.
        unread = int(one.stored_bytes / ELEMENT_BYTES[one.precision])
        graph = replace(graph, parameter_elements=graph.parameter_elements + unread)
    run = (graph, one.batch_size, one.precision, phase, one.training, one.inference)
    return Query(Network(*run), device, Software(runtime=one.runtime))


def _device(row: Mapping[object, object], catalog: DeviceCatalog) -> Device:
    if isinstance(row["device"], str):
        return catalog.get(row["device"])
    named = row["gpu"]
    return catalog.get(BOARDS.get(named, named) if isinstance(named, str) else UNNAMED)


BIN_MIB: Final = 8000.0
"""Width of the bins of the score `bin_accuracy`, as in `gpumemnet`."""


class PublishedMemoryProtocols(DatasetProtocols):
    """Allocated, reserved or device memory, as measured, by source and kind of set-up."""

    dataset = "published_memory"
    held_out_by = MappingProxyType(
        {"published": (), "unseen_model": ("family",), "unseen_source": ("source",)}
    )
    fits_any_folder = True
    unseen = MappingProxyType(
        {
            "unseen_model": {"family": NEW, "source": KNOWN},
            "unseen_model_and_source": {"family": NEW, "source": NEW},
            "unseen_source": {"family": KNOWN, "source": NEW},
        }
    )

    def predictor(self, seed: int = 0) -> Predictor:
        """`CalibratedMemory` on the bundled `Memory`; only the intervals are fitted."""
        return CalibratedMemory(bundled_memory())

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, Kept]:
        """All usable rows with an operator graph."""
        return memory_measurements(bundle.table("table"), graphs_of(bundle), catalog)

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """`published` without calibration on these rows, then families and sources held out."""
        rows, _ = self.measured(bundle, catalog)
        yield Fold(
            "published",
            rows.take(np.array([], dtype=np.intp)),
            list(self.tasks("published", rows, None)),
        )
        yield from super().folds(bundle, catalog)

    def tasks(self, protocol: str, held_out: Measurements, train: Trained) -> Tasks:
        """One task for each metric, part and phase."""
        for metric in METRICS:
            own = held_out.take(held_out.groups["metric"] == metric)
            name = f"{protocol}/{{part}}_{{phase}}"
            yield from tasks_by(own, ("part", "phase"), name, metric, bin_width=BIN_MIB)

    def left_out(self, bundle: Bundle, catalog: DeviceCatalog, seen: Seen) -> Mapping[str, int]:
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
    return bundled_part(CalibratedMemory).base
