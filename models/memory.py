"""Peak memory of inference: weights, largest live set, and what the device takes for itself.

Analytic, not learnt: no measured inference memory stands among the training data. The range spans
what is publicly known of the parts and makes no claim of coverage.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network, NumberFormat
from forerun.features.live_set import live_set
from forerun.features.query_table import graph_table
from forerun.features.roofline import ELEMENT_BYTES
from forerun.models.artifact import read_content, write_content
from forerun.models.prediction import Predictions

MIB = 2.0**20
ALLOCATED, PEAK = "allocated_memory_mib", "peak_memory_mib"
WEIGHT_BYTES: dict[NumberFormat, float] = {"amp": 6.0, "amp_bf16": 6.0}
"""Autocast keeps fp32 weights and caches a 16-bit copy (PyTorch, automatic mixed precision)."""

CONTEXT_MIB = 600.0
CONTEXT_LOW_MIB = 250.0
CONTEXT_HIGH_MIB = 1800.0
"""CUDA context, loaded kernels and library workspaces. Contexts alone are reported at 250 to 600
MiB by generation; an idle training job took 1.4 to 1.7 GiB of an A100 (GPUMemNet, arXiv
2602.17817), which stays the upper end."""

SLACK, SLACK_LOW, SLACK_HIGH = 1.10, 1.0, 1.40
"""Reserved over live: the allocator keeps 2 MiB and 20 MiB segments and does not return them."""

NOT_CALIBRATED = "memory: an engineering range, no inference memory was measured for it"


@dataclass(frozen=True)
class InferenceMemory:
    """Device-level and allocator-level peaks of one inference pass on a GPU.

    Attributes:
        context_mib: memory that the device takes whatever the network.
        rows: measurements behind it; 0 when it is the default.
    """

    context_mib: float = CONTEXT_MIB
    rows: int = 0
    name: ClassVar[str] = "inference_memory"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Device-level peak, and peak of live tensors."""
        return (PEAK, ALLOCATED)

    def answers(self, query: Query) -> bool:
        """Inference of networks on GPUs."""
        workload = query.workload
        if not isinstance(workload, Network) or query.device.kind != "gpu":
            return False
        return workload.phase == "inference" and not workload.graph.training

    def fit(self, measurements: Measurements) -> Self:
        """Itself: nothing is learnt beyond `adapt`."""
        return self

    def adapt(self, measurements: Measurements) -> Self:
        """The device's own share from rows with `peak_memory_mib`, shrunk toward the default."""
        measured = measurements.values.get(PEAK, np.zeros(0))
        rows = [i for i, v in enumerate(measured) if not np.isnan(v)]
        if not rows:
            return self
        live = np.array([_live_mib(measurements.queries[i]) for i in rows])
        own = float(np.median(measured[rows] - SLACK * live))
        weight = len(rows) / (len(rows) + 1.0)
        context = weight * max(own, 0.0) + (1.0 - weight) * CONTEXT_MIB
        return replace(self, context_mib=context, rows=len(rows))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Live tensors times the allocator's slack, plus the device's own share."""
        live = np.array([_live_mib(query) for query in queries])
        low = SLACK_LOW * live + min(CONTEXT_LOW_MIB, self.context_mib)
        high = SLACK_HIGH * live + max(CONTEXT_HIGH_MIB, self.context_mib)
        return Predictions(
            {PEAK: SLACK * live + self.context_mib, ALLOCATED: live},
            {PEAK: low, ALLOCATED: 0.9 * live},
            {PEAK: high, ALLOCATED: 1.3 * live},
            None,
            [_limits(query, peak) for query, peak in zip(queries, low, strict=True)],
        )

    def save(self, folder: Path) -> None:
        """Write the device's share."""
        write_content(folder, self.name, {"context_mib": self.context_mib, "rows": self.rows})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote."""
        return cls(**read_content(folder, cls.name))


def _live_mib(query: Query) -> float:
    """Weights and the largest live set, MiB."""
    network = query.workload
    assert isinstance(network, Network)
    graph, precision = network.graph, network.precision
    weights: float | None = graph.parameter_elements
    if weights is None:
        weights = float(graph_table(graph).parameter_elements.sum())
    element = ELEMENT_BYTES[precision]
    live = live_set(graph).peak_elements(network.batch_size / graph.batch_size)
    return (weights * WEIGHT_BYTES.get(precision, element) + live * element) / MIB


def _limits(query: Query, least_mib: float) -> tuple[str, ...]:
    held = query.device.memory_gib
    if held is not None and least_mib > held * 1024.0:
        over = f"memory: at least {least_mib:,.0f} MiB, and the device has {held:g} GiB"
        return (over, NOT_CALIBRATED)
    return (NOT_CALIBRATED,)
